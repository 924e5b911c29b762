"""Checks whether a SQLite file, its folder and its disk are fit, makes the file for `provision`, and copies it."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.model.errors import CountersinkError, SettingsError
from shared.sqlite.data_file import (
    MEMORY,
    NETWORK,
    SHARED,
    DataFile,
    make_file,
    mount_of,
    mounts,
    real,
    uri_of,
    why_unsafe,
)
from shared.sqlite.database import SMALL_DISK, Database
from shared.sqlite.schema import flaw_of_version, refuse_others, version_of

LONGEST_CHECK: Final = 30.0
"""Seconds for reading the whole file."""
STEPS: Final = 10_000
"""Instructions of SQLite between two looks at the time."""
FREE_WARNS: Final = 2**30
_LOCAL: Final = "SQLite's locks and its log need a local disk"


class SqliteSetup:
    """Checks the file of broker, store and overlay, of the store alone, or of the spool. `reserve`: bytes kept free."""

    def __init__(
        self,
        path: Path,
        reserve: int,
        elsewhere: Path | None = None,
        *,
        part: str = "",
        existing: bool = False,
    ) -> None:
        """`part`: its name in findings, if it does not hold all of the data. `existing`: no start makes the file.
        `elsewhere`: as for a `Database`.
        """
        self._named = path
        self._path = real(path)
        self._elsewhere = elsewhere
        self._existing = existing
        self._reserve = reserve
        self._part = part

    async def provision(self) -> AsyncIterator[Finding]:
        part = self._part or "file"
        if not self._existing or self._path.exists():
            yield Finding(OK, part, f"{self._path}: nothing to do, the first start makes it")
            return
        try:
            await Database(self._named, self._elsewhere).close()
        except CountersinkError as error:
            yield Finding(FAIL, part, str(error))
        else:
            yield Finding(OK, part, f"{self._path}: made")

    async def findings(self) -> AsyncIterator[Finding]:
        for finding in await asyncio.to_thread(self._look):
            yield finding._replace(part=self._part or finding.part)

    def _look(self) -> list[Finding]:
        folder = self._path.parent
        while not folder.exists():
            folder = folder.parent
        found = [_writable(folder), *_disk(folder, self._reserve), of_file_system(folder, mounts())]
        if (flaw := DataFile(self._named, self._elsewhere).flaw() or why_unsafe(self._path)) is not None:
            return [*found, Finding(FAIL, "file", flaw)]
        if self._path.exists():
            return found + _file(self._path)
        if self._existing:
            said = (
                f"{self._path} does not exist, and COUNTERSINK_EXISTING=yes: mount its volume, put a backup there, or"
            )
            return [*found, Finding(FAIL, "file", f"{said} make a new one with `countersink provision`")]
        return [*found, Finding(OK, "file", f"{self._path} does not exist yet: the first start makes it")]


def _writable(folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding(OK, "folder", f"{folder}: can be written")
    except OSError as error:
        said = f"{folder}: can't be written ({error.strerror}): choose another, or change its permissions"
        return Finding(FAIL, "folder", said)


def _disk(folder: Path, reserve: int) -> list[Finding]:
    try:
        disk = shutil.disk_usage(folder)
        return [of_free(folder, disk.free, min(reserve, disk.total // SMALL_DISK))]
    except OSError as error:
        return [Finding(WARN, "disk", f"{folder}: can't find out how much is free ({error.strerror})")]


def of_free(folder: Path, free: int, reserve: int) -> Finding:
    said = f"{folder}: {free / 2**30:.1f} GiB are free"
    if free >= FREE_WARNS:
        return Finding(OK, "disk", said)
    return Finding(
        FAIL if free < reserve else WARN, "disk", f"{said}: free some space: a full disk takes no increments"
    )


def of_file_system(folder: Path, table: str) -> Finding:
    kind = mount_of(folder, table).kind
    if kind in NETWORK:
        return Finding(FAIL, "disk", f"{folder}: a network file system ({kind}): choose another folder, {_LOCAL}")
    if kind in SHARED:
        said = f"{folder}: a file system that may be shared with other machines ({kind}): note that {_LOCAL}"
        return Finding(WARN, "disk", said)
    if kind in MEMORY:
        return Finding(WARN, "disk", f"{folder}: in memory ({kind}), lost at the next boot: choose one on a disk")
    if not kind:
        return Finding(WARN, "disk", f"{folder}: can't find out which file system it is: note that {_LOCAL}")
    return Finding(OK, "disk", f"{folder}: a local file system ({kind})")


def _file(path: Path) -> list[Finding]:
    try:
        with closing(sqlite3.connect(f"{uri_of(path)}?mode=rw", uri=True, isolation_level=None)) as db:
            refuse_others(db, path)
            return [_version(db, path), _journal(db, path), _sound(db, path), _can_write(db, path)]
    except SettingsError as error:
        return [Finding(FAIL, "file", str(error))]
    except (sqlite3.Error, CountersinkError) as error:
        said = f"{path}: can't be used ({error}): stop all processes on it and put a backup in its place"
        return [Finding(FAIL, "file", said)]


def _version(db: sqlite3.Connection, path: Path) -> Finding:
    if flaw := flaw_of_version(db):
        return Finding(FAIL, "file", f"{path}: {flaw}")
    return Finding(OK, "file", f"{path}: a file of Countersink, schema {version_of(db)}")


def _journal(db: sqlite3.Connection, path: Path) -> Finding:
    (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        return Finding(OK, "file", f"{path}: keeps a write-ahead log")
    return Finding(WARN, "file", f"{path}: its journal mode is {mode!r}: the next start changes it to WAL")


def _sound(db: sqlite3.Connection, path: Path) -> Finding:
    until = time.monotonic() + LONGEST_CHECK
    db.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    try:
        (first,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        said = (
            f"{path}: is large, not all of it was read within {LONGEST_CHECK:g} s: run PRAGMA quick_check on it later"
        )
        return Finding(WARN, "file", said)
    finally:
        db.set_progress_handler(None, 0)
    if first == "ok":
        return Finding(OK, "file", f"{path}: is sound")
    said = f"{path}: is damaged ({' '.join(first.split())}): stop all processes on it and put a backup in its place"
    return Finding(FAIL, "file", said)


def _can_write(db: sqlite3.Connection, path: Path) -> Finding:
    """Try a write and roll it back, since BEGIN IMMEDIATE alone succeeds where nothing may be written."""
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("PRAGMA user_version = 0")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return Finding(FAIL, "file", f"{path}: can't be written ({error}): change its permissions")
    return Finding(OK, "file", f"{path}: can be written")


# Copies a data file while processes use it: one consistent state, checked before it gets its name.


class Copied(NamedTuple):
    """The contents of a copy."""

    counters: int
    pending: int
    """Messages that no flusher has applied yet."""
    size: int


def copy(source: Path, target: Path) -> Copied:
    """Copy `source` to `target`, which must not exist. It blocks. Others may read and write meanwhile; it has what
    was accepted before it began.
    """
    if not source.exists():
        raise SettingsError(f"{source} does not exist, so there is nothing to copy")
    if not target.parent.is_dir():
        raise SettingsError(f"the folder {target.parent} does not exist: make it first, or choose another one")
    try:
        # Others may be able to write to the folder of the copy, so the copy is made in one that nobody else can enter:
        # no link that is planted there leads it to another file.
        with TemporaryDirectory(prefix=f"{target.name[:100]}.unfinished-", dir=target.parent) as private:
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
        raise CountersinkError(f"{source} can't be copied to {target}: {error}") from error
    return found


def _copy(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(f"{uri_of(source)}?mode=rw", uri=True, isolation_level=None)) as ours,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        ours.backup(copied)  # in one step, so it is of one instant, and need not begin again when somebody writes
        copied.execute("PRAGMA journal_mode = DELETE")


def _checked(path: Path) -> Copied:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise CountersinkError(f"the copy is damaged, so it was removed, and the file probably is, too: {said}")
        (counters,) = db.execute("SELECT count(*) FROM configs").fetchone()
        (pending,) = db.execute("SELECT count(*) FROM messages WHERE buried IS NULL").fetchone()
    return Copied(counters, pending, path.stat().st_size)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
