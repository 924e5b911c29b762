"""Has bytes reach the disk itself. On macOS fsync leaves them in the drive's cache, which a power failure empties."""

import fcntl
import os
import sqlite3
import sys
from typing import Final

PRAGMAS: Final = ("synchronous = FULL", "fullfsync = 1", "checkpoint_fullfsync = 1")
"""The last two do something on macOS alone."""


def set_durable(db: sqlite3.Connection) -> None:
    """What this connection commits, and what it moves from the log to the file, is on the disk afterwards."""
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")


def to_disk(file: int) -> None:
    """What was written to this descriptor is on the disk when this returns."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)
