"""Copies a data file while processes use it: one consistent state, checked before it gets its name. The file itself is
not written.
"""

import os
import shutil
import sqlite3
from contextlib import closing
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from shared.model.errors import CountersinkError, SettingsError
from shared.sqlite.data_file import RESTORE, Sighting, is_damage, make_file, opened, sighting_of


class Copied(NamedTuple):
    counters: int
    pending: int
    """Messages that no flusher has applied yet."""
    size: int
    seen: Sighting


def copy(source: Path, target: Path) -> Copied:
    """Copy `source` to `target`, which must not exist. It blocks. Others may read and write meanwhile; it has what
    was accepted before it began.
    """
    if not source.exists():
        raise SettingsError(
            f"{source} does not exist, so there is nothing to copy: name the folder of the service with --data"
        )
    if not target.parent.is_dir():
        raise SettingsError(f"the folder {target.parent} does not exist: make it first, or choose another one")
    try:
        # Others may be able to write to the folder of the copy, so the copy is made in one that nobody else can enter:
        # no link that is planted there leads it to another file.
        with TemporaryDirectory(prefix=_unfinished(target), dir=target.parent) as private:
            unfinished = Path(private) / "copy"
            make_file(unfinished)
            _copy(source, unfinished)
            found = _checked(unfinished)
            _sync(unfinished)
            os.link(unfinished, target)  # unlike a rename, it replaces nothing, not even a link
        _sync(target.parent)
    except FileExistsError:
        raise SettingsError(f"{target} already exists: choose another name") from None
    except sqlite3.Error as error:
        todo = f". The file is damaged: {RESTORE}" if is_damage(error) else ""
        raise CountersinkError(f"{source} can't be copied to {target}: {error}{todo}") from error
    return found


def went_on(source: Path, copied: Copied) -> bool:
    """Whether anything was counted in the source since it was copied."""
    try:
        with opened(source, "ro") as db:
            return sighting_of(db) != copied.seen
    except sqlite3.Error as error:
        raise CountersinkError(f"{source} can't be read: {error}") from error


def remove_unfinished(target: Path) -> None:
    """Remove what copies to `target` that were killed have left. Nobody else may copy to it meanwhile."""
    for left in target.parent.glob(f"{escape(_unfinished(target))}*"):
        shutil.rmtree(left, ignore_errors=True)


def _unfinished(target: Path) -> str:
    return f"{target.name[:100]}.unfinished-"


def _copy(source: Path, target: Path) -> None:
    with (
        opened(source, "ro") as ours,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        ours.backup(copied)  # in one step, so it is of one instant, and need not begin again when somebody writes
        copied.execute("PRAGMA journal_mode = DELETE")


def _checked(path: Path) -> Copied:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise CountersinkError(
                f"the copy is damaged, so it was removed, and the file probably is, too ({said}): {RESTORE}"
            )
        (counters,) = db.execute("SELECT count(*) FROM configs").fetchone()
        (pending,) = db.execute("SELECT count(*) FROM messages WHERE buried IS NULL").fetchone()
        return Copied(counters, pending, path.stat().st_size, sighting_of(db))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
