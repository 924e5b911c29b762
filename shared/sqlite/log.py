"""Owns the length of a file's write-ahead log: readers that follow one another closely never let it begin anew."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

LONGEST: Final = 6 * 2**20
"""Bytes. SQLite itself begins anew at 4 MiB, if at that moment nobody reads."""
LOOK: Final = 0.02
"""Seconds between two looks at its length."""
PATIENCE: Final = 200
"""Milliseconds in which those who read must come to an end; who begins to read meanwhile needs no log any more."""
PAUSE: Final = 0.2
"""Seconds until the next try, after one that was in vain."""


class Log:
    """Of the writer's thread."""

    def __init__(self, file: Path) -> None:
        self._path = f"{file}-wal"
        self._next = 0.0

    def shorten(self, db: sqlite3.Connection) -> None:
        """If it is too long: all of it into the file, and the space back to the disk."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        with contextlib.suppress(OSError, sqlite3.Error):  # the next commit says what is wrong
            if os.stat(self._path).st_size <= LONGEST:  # noqa: PTH116 (after commits)
                return
            (before,) = db.execute("PRAGMA busy_timeout").fetchone()
            db.execute(f"PRAGMA busy_timeout = {PATIENCE}")
            try:
                (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.execute(f"PRAGMA busy_timeout = {before}")
            if busy:
                self._next = now + PAUSE
