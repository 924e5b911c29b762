"""Checks whether a SQLite file, its folder and its disk are fit, and makes the file for `provision`."""

import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from shared.config.findings import FAIL, OK, WARN, Finding
from shared.model.errors import CountersinkError, SettingsError
from shared.sqlite.data_file import (
    MEMORY,
    NETWORK,
    RESTORE,
    SHARED,
    DataFile,
    mount_of,
    mounts,
    opened,
    real,
    why_not_opened,
    why_unsafe,
)
from shared.sqlite.database import SMALL_DISK, Database
from shared.sqlite.schema import FIRST, flaw_of_room, flaw_of_version, newest, refuse_others, version_of

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
            said = "exists" if self._path.exists() else "nothing to do, the first start makes it"
            yield Finding(OK, part, f"{self._path}: {said}")
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
        with opened(path, "rw") as db:
            refuse_others(db, path)
            return [_version(db, path), _journal(db, path), _sound(db, path), _can_write(db, path)]
    except SettingsError as error:
        return [Finding(FAIL, "file", str(error))]
    except (sqlite3.Error, CountersinkError) as error:
        said = f"{path}: can't be used ({error}). {why_not_opened(path, error)}"
        return [Finding(FAIL, "file", said)]


def _version(db: sqlite3.Connection, path: Path) -> Finding:
    version = version_of(db)
    older = FIRST <= version < newest()
    if flaw := flaw_of_version(db, path) or (flaw_of_room(db, path) if older else None):
        return Finding(FAIL, "file", f"{path}: {flaw}")
    if older:
        said = f"has schema {version}: the next start copies it, and converts it to schema {newest()}"
        return Finding(WARN, "file", f"{path}: {said}")
    return Finding(OK, "file", f"{path}: a file of Countersink, schema {version}")


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
        said = f"{path}: is too large to be read within {LONGEST_CHECK:g} s: run PRAGMA quick_check on it later"
        return Finding(WARN, "file", said)
    finally:
        db.set_progress_handler(None, 0)
    if first == "ok":
        return Finding(OK, "file", f"{path}: is sound")
    said = f"{path}: is damaged ({' '.join(first.split())}): {RESTORE}"
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
