"""Owns a file's write-ahead log: what of it a process may build on, and where it begins anew when it is too long."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from shared.sqlite.sync import to_disk

LONGEST: Final = 6 * 2**20
"""Bytes. SQLite itself begins anew at 4 MiB, if at that moment nobody reads."""
LOOK: Final = 0.02
"""Seconds between two looks at its length."""
PATIENCE: Final = 200
"""Milliseconds in which those who read must come to an end; who begins to read meanwhile needs no log any more."""
PAUSE: Final = 20 * PATIENCE / 1_000
"""Seconds until the next try, after one that was in vain: all who write have waited for it."""
COPIED: Final = 2**16
"""Bytes at once."""


class Log:
    """Of the writer's thread."""

    def __init__(self, file: Path) -> None:
        self._path = f"{file}-wal"
        self._next = 0.0
        self.inherited = True
        """It may hold what another process wrote and could not sync. While that is so it must not be moved into the
        file.
        """

    def inherit(self) -> None:
        """Before the first promise, by whoever holds the lock for writing. If the last process could not sync the log
        and was killed, the log can be read and is on no disk: the kernel takes it for written. What was appended to it
        would be lost with it. So all of it is written once more, over itself; who reads meanwhile sees no difference.
        """
        if self.inherited:
            log = os.open(self._path, os.O_RDWR)
            try:
                at = 0
                while some := os.pread(log, COPIED, at):
                    at += os.pwrite(log, some, at)
                to_disk(log)
            finally:
                os.close(log)
            self.inherited = False

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
                self._next = time.monotonic() + PAUSE
