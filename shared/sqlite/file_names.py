"""Finds the one name under which a data file is opened: SQLite keeps its log, and we our locks, beside that name."""

from errno import ELOOP
from pathlib import Path
from stat import S_ISREG

from shared.model.errors import SettingsError
from shared.sqlite.volumes import mounts, points


def real(path: Path) -> Path:
    """Where links lead to, so that all who come by any link share one log. The file need not be there."""
    try:
        return path.resolve(strict=True)  # else Python 3.13 says nothing of a circle
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) or error.errno == ELOOP:
            raise SettingsError(f"{path}: its links lead in a circle: name the file itself") from error
        return path.resolve()


def flaw_of(path: Path, table: str | None = None) -> str | None:
    """Why the file could be reached with another log than the one beside this name, which would lose counts; and what
    to do. None if it could not, or if nobody can tell. `table`: what is mounted.
    """
    try:
        there = path.stat()
    except OSError:
        return None  # opening it says why
    if S_ISREG(there.st_mode) and there.st_nlink > 1:
        return (
            f"{path} has {there.st_nlink} names (hard links), and a process on another name would not see its log:"
            " counts would be lost. Stop all processes on it and remove the other name, which"
            f" `find / -xdev -samefile {path}` shows; keep the one that has a -wal file beside it. Such a link is no"
            " backup: copy with `sqlite3 FILE '.backup COPY'`"
        )
    if str(path) in points(mounts() if table is None else table):
        return (
            f"{path} is mounted as a single file, so its log and its locks would not be kept with it: mount its folder"
            " instead"
        )
    return None
