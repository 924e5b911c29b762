"""Owns what is kept free on a file's disk: new messages are refused while there is still room to apply the old ones."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.model.errors import StorageFullError

SMALL_DISK: Final = 10
"""Of a disk, no more than one part of so many is kept free for its own sake."""
GROWTH: Final = 6
"""Bytes in the file that it may take to apply a pending one: 4.6 were measured where each increment has a short id, and
so a receipt.
"""
LOG_GROWTH: Final = 16
"""And in the log, where each commit writes all pages that it touches anew."""
LONGEST_LOG: Final = 24 * 2**20
"""Then it begins at its start again."""


class Reserve:
    """Call it where waiting for a disk harms nobody: looking at it takes microseconds, but not while the disk hangs."""

    def __init__(
        self,
        file: Path,
        least: int,
        *,
        applied: bool = True,
        look: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        """`applied`: what is pending will be applied on that disk, too, and not only be taken away."""
        self._file = file
        self._least = least
        self._applied = applied
        self._look = look

    def check(self, pending: int) -> None:
        """`StorageFullError` unless there is room for what waits to be applied, so many bytes, and the reserve."""
        try:
            disk = self._look(self._file.parent)
        except OSError:
            return  # then a write says what is wrong
        free = disk.f_bavail * disk.f_frsize
        kept = min(self._least, disk.f_blocks * disk.f_frsize // SMALL_DISK)
        if free < self._needed(pending, kept):
            raise StorageFullError(
                f"the disk of {self._file} is nearly full, {free >> 20} MiB are free: free some space; what is"
                " left is for what was accepted (COUNTERSINK_DISK_RESERVE)"
            )

    def _needed(self, pending: int, kept: int) -> int:
        if not self._applied:
            return kept + pending
        return max(kept, min(LOG_GROWTH * pending, LONGEST_LOG)) + GROWTH * pending + self._in_the_log()

    def _in_the_log(self) -> int:
        """Bytes at most by which the file grows when what was committed is moved there."""
        try:
            return os.stat(f"{self._file}-wal").st_size  # noqa: PTH116 (for each message)
        except OSError:
            return 0
