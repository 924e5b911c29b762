"""Owns the files of one database as this process opened them: whether they are still there, and how far they got."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from shared.model.errors import CountersinkError, DamagedError
from shared.sqlite.log import Log
from shared.sqlite.witness import IN_USE, FileWitness, Sighting, sighting_of

REMEMBER: Final = 10.0
"""Seconds between two notes of how far the file has got."""


class OpenedFile:
    """The file, its log and the log's index, by which the processes on the file know of each other."""

    def __init__(self, path: Path, witness: FileWitness) -> None:
        self._witness = witness
        self._files: list[tuple[str, tuple[int, int]]] = []
        for file in (str(path), f"{path}-wal", f"{path}-shm"):
            there = os.stat(file)  # noqa: PTH116 (as on every commit)
            self._files.append((file, (there.st_dev, there.st_ino)))
        IN_USE[self._files[0][1]] += 1
        self._noted: Sighting | None = None
        self._next = 0.0

    def check(self) -> None:
        """`DamagedError` if they are not those that were opened. SQLite goes on with files that were deleted: what was
        accepted would be gone with the process, and reads would answer from what is no longer the data.
        """
        for file, identity in self._files:
            try:
                there = os.stat(file)  # noqa: PTH116 (on every commit)
            except OSError:
                there = None
            if there is None or (there.st_dev, there.st_ino) != identity:
                raise DamagedError(
                    f"{file} was removed or replaced while it was in use: put it back and restart. If it is another"
                    " file, the start says what to do"
                )

    def note(self, db: sqlite3.Connection, log: Log, *, now: bool = False) -> None:
        """Remember how far the file has got without its log, every few seconds or `now`. Called between commits of
        the writer, since the log may be moved into the file only when this process has written it once more. Where
        others read or write meanwhile not all of it can be moved, and there is another time.
        """
        if log.inherited or (time.monotonic() < self._next and not now):
            return
        self._next = time.monotonic() + REMEMBER
        with contextlib.suppress(OSError, sqlite3.Error, CountersinkError):  # the next commit says what is wrong
            sighting = sighting_of(db)
            if sighting == self._noted:
                return
            self.check()
            (busy, logged, moved) = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy and logged == moved:
                self._witness.remember(sighting)
                self._noted = sighting

    def close(self) -> None:
        """When all connections are closed."""
        IN_USE[self._files[0][1]] -= 1
