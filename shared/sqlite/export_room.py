"""Owns how much room exports take in a SQLite file: admits them within limits, and gives room back to the disk."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Final

from shared.model.errors import RefusedError, ShareError
from shared.model.jobs import EXPORT, FAILED
from shared.sqlite.time import READ

COUNT_AGAIN: Final = 1.0
"""Seconds for which a sum of all chunks is believed. What this process adds meanwhile is added to it."""
MOST_FREED: Final = 2**22
"""Bytes of chunks that one transaction deletes, since others wait for it: some hundredths of a second."""
_HOUR: Final = 3_600
_BYTES: Final = "SELECT coalesce(sum(length(chunk)), 0) FROM jobs JOIN done_tasks ON job = id WHERE kind = ?"
_NUMBER: Final = "SELECT count(*), coalesce(min(expires), 0) FROM jobs WHERE kind = ? AND state != ?"
_TAKEN: Final = (
    "COUNTERSINK_{} allows {}, and {} are kept: delete exports that you have read (DELETE /v1/jobs/{{id}}), or"
    " wait until the oldest one expires, in {:.1f} hours"
)


class ExportRoom:
    """Limits how many exports are kept, and how many bytes. Use it in the writer's thread only."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._until = 0.0

    def begin(self, db: sqlite3.Connection) -> None:
        """Raise `ShareError` if no other export may begin."""
        number, expires = db.execute(_NUMBER, (EXPORT, FAILED)).fetchone()
        size = self._count(db)
        if number < self._most and size < self._most_bytes:
            return
        left = max((expires - db.execute(READ).fetchone()[0]) / 1_000, 1.0)
        if number >= self._most:
            said = _TAKEN.format("MAX_EXPORTS", f"{self._most} exports", number, left / _HOUR)
        else:
            said = _TAKEN.format("MAX_EXPORT_BYTES", f"{self._most_bytes} bytes of exports", size, left / _HOUR)
        raise ShareError(said, left)

    def take(self, db: sqlite3.Connection, size: int) -> None:
        """Count a chunk of this size that was just inserted. Raises `RefusedError` if there is no room for it."""
        self._bytes += size
        if (time.monotonic() >= self._until or self._bytes > self._most_bytes) and self._count(db) > self._most_bytes:
            self._until = 0.0  # it is taken out again
            raise RefusedError(
                f"exports may take {self._most_bytes} bytes in all (COUNTERSINK_MAX_EXPORT_BYTES), and this one needs"
                " more than the others leave: delete exports that you have read, or export a longer prefix"
            )

    def _count(self, db: sqlite3.Connection) -> int:
        (self._bytes,) = db.execute(_BYTES, (EXPORT,)).fetchone()
        self._until = time.monotonic() + COUNT_AGAIN
        return self._bytes


def delete_results(db: sqlite3.Connection, which: str, values: Sequence[object], limit: int) -> int:
    """Delete some results of tasks, and give their room back to the disk. Returns how many were deleted.

    `which`: selects rows of `done_tasks`, each with its number and the length of its chunk.
    """
    rows: list[tuple[int]] = []
    size = 0
    for row, length in db.execute(f"{which} LIMIT ?", (*values, limit)):
        rows.append((row,))
        size += length
        if size > MOST_FREED:
            break
    (before,) = db.execute("PRAGMA freelist_count").fetchone()
    db.executemany("DELETE FROM done_tasks WHERE rowid = ?", rows)
    (after,) = db.execute("PRAGMA freelist_count").fetchone()
    for _ in range(after - before):
        db.execute("PRAGMA incremental_vacuum(1)")  # a page: Python takes only the first step of this statement
    return len(rows)
