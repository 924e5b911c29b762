"""Owns where a file's write-ahead log begins anew: before the first write of a process, and when it has become long."""

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
        self._inherited = True
        """It may hold what another process wrote."""

    def inherit(self, db: sqlite3.Connection) -> None:
        """Before the first promise. If the last process could not sync the log and was killed, the log can be read and
        is on no disk: the kernel takes it for written. What was appended to it would be lost with it. What it holds is
        copied into the file, where it is written once more, and it starts from its beginning. While others read for
        long that can't be; as long as there are others, what could not be synced is not taken for part of the log.
        """
        if self._inherited:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._inherited = False

    def shorten(self, db: sqlite3.Connection) -> None:
        """If it is too long: all of it into the file, and the space back to the disk. Readers that follow one another
        closely never let it begin anew by itself.
        """
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
