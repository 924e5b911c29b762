"""The time of a SQLite file. It passes only while a process runs, so a wrong clock can't make it pass faster.

Each process adds what has passed since it last saw the file's time, by a clock that can't be set. The file keeps the
highest time. So this time never passes faster than real time. While no process runs it stands still, and receipts live
longer by as much. No wall clock is ever read.
"""

import sqlite3
from typing import Final

from shared.model.buckets import NEVER, StoreMillis
from shared.runtime.clock import Clock
from shared.sqlite.database import Database

READ: Final = "SELECT now FROM store"
KEPT: Final = 600_000
"""Milliseconds that may be lost when all processes end: without commits, the time is written only this often."""


class FileTime:
    """The time as one adapter in one process sees it. Used in the writer's thread and in the event loop's thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._last = NEVER, clock.monotonic()

    def now(self) -> StoreMillis:
        """The time. Call it outside of a write."""
        with self._database.reading() as db:
            return self.inside(db)

    def inside(self, db: sqlite3.Connection) -> StoreMillis:
        """The time within a write, whose transaction keeps other processes from writing."""
        return self._pass(db.execute(READ).fetchone()[0])

    def keep(self, db: sqlite3.Connection) -> None:
        """Write the time down for later processes, if that was not done for long."""
        (stored,) = db.execute(READ).fetchone()
        now = self._pass(stored)
        if now > stored + KEPT:
            db.execute("UPDATE store SET now = ?", (now,))

    def _pass(self, stored: int) -> StoreMillis:
        boot, (seen, at) = self._clock.monotonic(), self._last
        now = StoreMillis(max(int(stored), seen + int((boot - at) * 1000)))
        self._last = now, boot
        return now
