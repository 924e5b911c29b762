"""Owns the time of a SQLite file: it passes only while a process watches, so no clock that is wrong can hurry it.

Each process adds what has passed since it last saw the file's time, by a clock that no one sets; the file keeps the
greatest. So the time is never ahead of what has really passed since the file was made. It stands still while no process
runs, and receipts live so much longer. No wall clock is asked, not even once.
"""

import sqlite3
from typing import Final

from shared.runtime.clock import Clock
from shared.sqlite.database import Database, translate

READ: Final = "SELECT now FROM store"
KEPT: Final = 600_000
"""Milliseconds that may be lost when all processes end: a time that nobody commits by is written so seldom."""


class FileTime:
    """One for each process and adapter. In the thread that writes and in that of the event loop."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._reader: sqlite3.Connection | None = None
        self._clock = clock
        self._last = 0, clock.monotonic()

    def now(self) -> int:
        """Milliseconds, outside of a write."""
        try:
            if self._reader is None:  # who only writes needs none
                self._reader = self._database.reader()
            return self._pass(self._reader.execute(READ).fetchone()[0])
        except sqlite3.Error as error:
            raise translate(error, self._database.path) from error

    def inside(self, db: sqlite3.Connection) -> int:
        """The same within a write, whose transaction lets no other process write meanwhile."""
        return self._pass(db.execute(READ).fetchone()[0])

    def keep(self, db: sqlite3.Connection) -> None:
        """For the processes that come later."""
        if self.inside(db) > db.execute(READ).fetchone()[0] + KEPT:
            db.execute("UPDATE store SET now = ?", (self.inside(db),))

    def _pass(self, stored: int) -> int:
        boot, (seen, at) = self._clock.monotonic(), self._last
        now = max(int(stored), seen + int((boot - at) * 1000))
        self._last = now, boot
        return now
