"""Lets only their owner open the data's files. Anyone who can open a file can lock it, and so stop writes."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG, S_ISSOCK, S_ISVTX
from tempfile import mkstemp
from typing import Final

_log = logging.getLogger(__name__)

FOLDER: Final = 0o700
FILE: Final = 0o600
OTHERS: Final = 0o077
"""What a mode grants to others than the owner."""
_WRITES: Final = 0o022
_OURS: Final = ("countersink.db", "spool-")
_LOCKS: Final = (".holder", ".new")


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, whatever the umask says."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(FOLDER, exist_ok=True)
        one.chmod(FOLDER)


def make_file(path: Path) -> None:
    """Make an empty file if there is none. An existing one is not opened, because closing it would drop SQLite's locks.
    SQLite gives the files beside it the same mode.
    """
    with suppress(FileExistsError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        os.fchmod(file, FILE)
        os.close(file)


def open_lock(path: Path) -> int:
    """Open a lock file, and make it if it is missing."""
    make_file(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)


def narrow(path: Path) -> None:
    """Take the rights of others from the data file, from what is beside it, and from the folder if it has only our
    files. One line of the log names the changes.
    """
    folder, changed = path.parent, []
    with suppress(OSError):
        if _is_ours(folder, path.name):
            changed += _narrowed(folder, FOLDER, Path.is_dir)
        elif folder.stat().st_mode & (_WRITES | S_ISVTX) in {0o020, 0o002, 0o022}:
            _log.warning("%s: other users can write to this folder, and so replace the data in it", folder)
    for file in (path, *sorted(folder.glob(f"{_plain(path.name)}-*")), *sorted(folder.glob("*.holder"))):
        narrowed = _narrowed(file, FILE, _is_file)
        if narrowed and file.name == f"{path.name}-turn":
            _renew(file)
        changed += narrowed
    if changed:
        _log.warning("other users had access to the data; the modes are narrower now: %s", ", ".join(changed))


def _is_ours(folder: Path, name: str) -> bool:
    """Whether nothing but our files is in it, and it is not meant for everybody, as /tmp is."""
    if folder.stat().st_mode & S_ISVTX:
        return False
    return all(
        one.name.startswith((name, *_OURS)) or one.name.endswith(_LOCKS) or S_ISSOCK(one.lstat().st_mode)
        for one in folder.iterdir()
    )


def _narrowed(path: Path, mode: int, fits: Callable[[Path], bool]) -> list[str]:
    """The change in words: the path and its former mode, or nothing."""
    with suppress(FileNotFoundError):
        before = S_IMODE(path.lstat().st_mode)
        if before & OTHERS and fits(path):
            try:
                path.chmod(before & mode)
            except OSError as error:
                _log.warning("%s: other users have access to it (mode %04o): %s", path, before, error.strerror)
            else:
                return [f"{path} (mode {before:04o})"]
    return []


def _is_file(path: Path) -> bool:
    return S_ISREG(path.lstat().st_mode)


def _renew(lock: Path) -> None:
    """Replace a lock file by a copy of the same owner: somebody who opened it before may hold its lock for ever."""
    there = lock.stat()
    number, new = mkstemp(prefix=f"{lock.name}.", dir=lock.parent)  # nobody can have put a link there
    with os.fdopen(number, "wb") as out:
        out.write(lock.read_bytes())
        os.fchown(number, there.st_uid, there.st_gid)  # root may look at the data of another user
    Path(new).replace(lock)


def _plain(name: str) -> str:
    """The name as a pattern that matches only itself."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)
