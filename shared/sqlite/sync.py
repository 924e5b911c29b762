"""Makes bytes reach the disk itself. On macOS fsync leaves them in the drive's cache, which a power failure empties."""

import fcntl
import os
import sqlite3
import sys
from typing import Final

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
