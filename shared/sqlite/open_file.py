"""Tells whether the files that this process opened for one database still exist, and how far they have got."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from shared.model.errors import CountersinkError, DamagedError
from shared.sqlite.witness import IN_USE, FileWitness, Sighting, sighting_of
from shared.sqlite.write_ahead_log import Log

BETWEEN_CHECKS: Final = 0.01
"""Seconds between two looks at the files by readers."""
REMEMBER: Final = 10.0
"""Seconds between two notes of how far the file has got."""


class OpenedFile:
    """The file, its log and the log's index, through which the processes on the file know of each other."""

    def __init__(self, path: Path, witness: FileWitness) -> None:
        self._witness = witness
        self._files: list[tuple[str, tuple[int, int]]] = []
        for file in (str(path), f"{path}-wal", f"{path}-shm"):
            there = os.stat(file)  # noqa: PTH116 (as on every commit)
            self._files.append((file, (there.st_dev, there.st_ino)))
        IN_USE[self._files[0][1]] += 1
        self._noted: Sighting | None = None
        self._next = self._next_check = 0.0

    def check(self) -> None:
        """Raise `DamagedError` if they are not those that were opened. SQLite goes on with deleted files: what is
        accepted would be lost with the process, and reads would answer from a file that is no longer the data.
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

    def check_often(self) -> None:
        """The same for reads: most of them take less time than a look at the files."""
        now = time.monotonic()
        if now >= self._next_check:
            self.check()
            self._next_check = now + BETWEEN_CHECKS

    def note(self, db: sqlite3.Connection, log: Log, *, now: bool = False) -> None:
        """Remember how far the file has got without its log, every few seconds or `now`. The writer calls it between
        commits. The log may be moved into the file only after this process has written it once more (`Log.inherit`).
        If others read or write meanwhile, not all of it can be moved, and a later call tries again.
        """
        if log.inherited or (time.monotonic() < self._next and not now):
            return
        self._next = time.monotonic() + REMEMBER
        with contextlib.suppress(OSError, sqlite3.Error, CountersinkError):  # the next commit reports what is wrong
            sighting = sighting_of(db)
            if sighting == self._noted:
                return
            self.check()
            (busy, logged, moved) = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy and logged == moved:
                self._witness.remember(sighting)
                self._noted = sighting

    def close(self) -> None:
        """Call it when all connections are closed."""
        IN_USE[self._files[0][1]] -= 1
