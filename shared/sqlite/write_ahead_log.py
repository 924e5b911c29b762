"""Makes a file's write-ahead log safe to append to, empties it when it is too long, and syncs bytes to the disk
itself.
"""

import contextlib
import fcntl
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Final

# Makes bytes reach the disk itself. On macOS fsync leaves them in the drive's cache, which a power failure empties.


PRAGMAS: Final = ("synchronous = FULL", "fullfsync = 1", "checkpoint_fullfsync = 1")
"""The last two have an effect on macOS only."""


def set_durable(db: sqlite3.Connection) -> None:
    """Make this connection sync what it commits, and what it moves from the log to the file."""
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")


def to_disk(file: int) -> None:
    """Return when what was written to this descriptor is on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


LONGEST: Final = 6 * 2**20
"""Bytes. SQLite itself starts the log again at 4 MiB, but only if nobody reads at that moment."""
LOOK: Final = 0.02
"""Seconds between two looks at its length."""
READERS_END_WITHIN_MS: Final = 200
"""Milliseconds in which readers must end. Reads that begin meanwhile do not need the log."""
PAUSE: Final = 20 * READERS_END_WITHIN_MS / 1_000
"""Seconds until the next try after one that failed, since all writers have waited for it."""
COPIED: Final = 2**16
"""Bytes that are copied at once."""


class Log:
    """The log of one file. Use it in the writer's thread only."""

    def __init__(self, file: Path) -> None:
        self._path = f"{file}-wal"
        self._next = 0.0
        self.inherited = True
        """Whether it may hold what another process wrote and could not sync. If so, don't move it into the file."""

    def inherit(self) -> None:
        """Write the log once more, over itself, and sync it. Call it before the first commit, with the write lock.

        If the last process could not sync the log and was killed, the log can be read but is on no disk, though the
        kernel takes it for written. What is appended to it would be lost with it. Readers see no difference.
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
        """If the log is too long, move all of it into the file and free its space. While readers follow one another
        closely, SQLite never does so by itself.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        with contextlib.suppress(OSError, sqlite3.Error):  # the next commit reports what is wrong
            if os.stat(self._path).st_size <= LONGEST:  # noqa: PTH116 (after commits)
                return
            (before,) = db.execute("PRAGMA busy_timeout").fetchone()
            db.execute(f"PRAGMA busy_timeout = {READERS_END_WITHIN_MS}")
            try:
                (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.execute(f"PRAGMA busy_timeout = {before}")
            if busy:
                self._next = time.monotonic() + PAUSE
