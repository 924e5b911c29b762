"""Keeps part of a file's disk free: new messages are refused while there is still room to apply old ones."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.model.errors import StorageFullError

SMALL_DISK: Final = 10
"""The reserve is at most the size of the disk divided by this."""
GROWTH: Final = 6
"""Bytes by which the file may grow to apply one pending byte. 4.6 were measured where each increment has a short id,
and so a receipt.
"""
LOG_GROWTH: Final = 16
"""Bytes by which the log may grow for one pending byte, since each commit writes all pages that it touches."""
LONGEST_LOG: Final = 24 * 2**20
"""Bytes at which the log has surely been started again."""


class Reserve:
    """Checks free space. Call it where waiting does no harm: a look takes microseconds, unless the disk hangs."""

    def __init__(
        self,
        file: Path,
        least: int,
        *,
        applied: bool = True,
        look: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        """`applied`: what is pending will be applied on this disk, too, and not just be removed from it."""
        self._file = file
        self._least = least
        self._applied = applied
        self._look = look

    def check(self, db: sqlite3.Connection, pending: int, *, large: bool = False) -> None:
        """Raise `StorageFullError` unless there is room for the reserve and for `pending` bytes to be applied.

        Call it in the writer's thread, with its connection. `large`: what is to be written is large and can wait, so it
        leaves twice the reserve to increments.
        """
        try:
            disk = self._look(self._file.parent)
        except OSError:
            return  # a write will report what is wrong
        free, kept = _free_and_kept(disk, self._least)
        needed = self._needed(db, pending, kept)
        if large and free < 2 * needed:
            raise StorageFullError(
                f"the disk of {self._file.name} is nearly full, {free >> 20} MiB are free, and exports leave the"
                " rest to increments: free some space, or delete exports that you have read (DELETE /v1/jobs/{id})"
            )
        if free < needed:
            raise StorageFullError(
                f"the disk of {self._file.name} is nearly full, {free >> 20} MiB are free: free some space; the rest is"
                " kept for what was accepted before (COUNTERSINK_DISK_RESERVE)"
            )

    def spare(self) -> int:
        """Free bytes beyond those that are kept. Raises `OSError` if the disk can't be asked."""
        free, kept = _free_and_kept(self._look(self._file.parent), self._least)
        return free - kept

    def _needed(self, db: sqlite3.Connection, pending: int, kept: int) -> int:
        if not self._applied:
            return kept + pending
        return max(kept, min(LOG_GROWTH * pending, LONGEST_LOG)) + GROWTH * pending + self._in_the_log(db)

    def _in_the_log(self, db: sqlite3.Connection) -> int:
        """Bytes by which the file grows when the log is moved into it. The log itself keeps its length after that."""
        (pages,), (size,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        try:
            return max(int(pages) * int(size) - os.stat(self._file).st_size, 0)  # noqa: PTH116 (for each message)
        except OSError:
            return 0


def _free_and_kept(disk: os.statvfs_result, least: int) -> tuple[int, int]:
    return disk.f_bavail * disk.f_frsize, min(least, disk.f_blocks * disk.f_frsize // SMALL_DISK)
