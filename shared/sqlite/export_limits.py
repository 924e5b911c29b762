"""Admits exports into a SQLite file within limits, and gives their room back to the disk."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Final

from shared.model.errors import RefusedError
from shared.model.job_shares import bounds_of, check_exports, share_of, sharers_of
from shared.model.jobs import EXPORT, FAILED
from shared.sqlite.time import READ

COUNT_AGAIN: Final = 1.0
"""Seconds for which a sum of all chunks is believed. What this process adds meanwhile is added to it."""
MOST_FREED: Final = 2**22
"""Bytes of chunks that one transaction deletes, since others wait for it: some hundredths of a second."""
_OWNED: Final = "kind = ? AND id >= ? AND id < ?"
_BYTES: Final = f"SELECT coalesce(sum(length(chunk)), 0) FROM jobs JOIN done_tasks ON job = id WHERE {_OWNED}"  # noqa: S608 (a constant)
_KEPT: Final = f"SELECT count(*), coalesce(min(expires), 0) FROM jobs WHERE {_OWNED} AND state != ?"  # noqa: S608 (a constant)


class ExportRoom:
    """Limits how many exports are kept, and how many bytes, in all and of each owner. Use it in the writer's thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes: dict[str, tuple[int, float]] = {}
        """The sum of all chunks of an owner, or of all owners under an empty string, and until when it is believed."""

    def begin(self, db: sqlite3.Connection, job: str) -> None:
        """Raise `ShareError` if no other export may begin."""
        for owner in sharers_of(job):
            number, expires = db.execute(_KEPT, (EXPORT, *bounds_of(owner), FAILED)).fetchone()
            left = (expires - db.execute(READ).fetchone()[0]) / 1_000
            check_exports(owner, "MAX_EXPORTS", self._most, number, left=left)
            size = self._count(db, owner)
            check_exports(owner, "MAX_EXPORT_BYTES", self._most_bytes, size, left=left, unit="bytes of exports")

    def take(self, db: sqlite3.Connection, job: str, size: int) -> None:
        """Count a chunk of this size that was just inserted. Raises `RefusedError` if there is no room for it."""
        for owner in sharers_of(job):
            share = share_of(owner, self._most_bytes)
            held, until = self._bytes.get(owner, (0, 0.0))
            self._bytes[owner] = held + size, until
            if (time.monotonic() >= until or held + size > share) and self._count(db, owner) > share:
                self._bytes.clear()  # it is taken out again
                whose = f"of one owner may take {share}" if owner else f"may take {share}"
                raise RefusedError(
                    f"exports {whose} bytes in all (COUNTERSINK_MAX_EXPORT_BYTES), and this one needs"
                    " more than the others leave: delete exports that you have read, or export a longer prefix"
                )

    def _count(self, db: sqlite3.Connection, owner: str) -> int:
        (size,) = db.execute(_BYTES, (EXPORT, *bounds_of(owner))).fetchone()
        self._bytes[owner] = size, time.monotonic() + COUNT_AGAIN
        return int(size)


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
