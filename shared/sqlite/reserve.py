"""Owns what is kept free on a file's disk: new messages are refused while there is still room to apply the old ones."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.model.errors import StorageFullError

SMALL_DISK: Final = 10
"""Of a disk, no more than one part of so many is kept free for its own sake."""
LOOK: Final = 0.25
"""Seconds between two looks at the disk."""
GROWTH: Final = 6
"""Bytes in the file that it may take to apply a pending one: 4.6 were measured where each increment has a short id, and
so a receipt.
"""
LOG_GROWTH: Final = 16
"""And in the log, where each commit writes all pages that it touches anew."""
LONGEST_LOG: Final = 24 * 2**20
"""Then it begins at its start again."""


class Reserve:
    """Call it where waiting for a disk harms nobody: a look takes microseconds, but not while the disk hangs."""

    def __init__(
        self,
        file: Path,
        least: int,
        *,
        applied: bool = True,
        look: Callable[[Path], os.statvfs_result] = os.statvfs,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`applied`: what is pending will be applied on that disk, too, and not only be taken away."""
        self._file = file
        self._least = least
        self._applied = applied
        self._look = look
        self._clock = clock
        self._next = float("-inf")
        self._free = 0
        self._kept = 0

    def check(self, pending: int) -> None:
        """`StorageFullError` unless there is room for what waits to be applied, so many bytes, and the reserve."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LOOK
            self._free, self._kept = self._measure()
        if self._free < self._needed(pending):
            raise StorageFullError(
                f"the disk of {self._file} is nearly full, {self._free >> 20} MiB are free: free some space; what is"
                " left is for what was accepted (COUNTERSINK_DISK_RESERVE)"
            )

    def _needed(self, pending: int) -> int:
        if not self._applied:
            return self._kept + pending
        return max(self._kept, min(LOG_GROWTH * pending, LONGEST_LOG)) + GROWTH * pending

    def _measure(self) -> tuple[int, int]:
        try:
            disk = self._look(self._file.parent)
        except OSError:
            return 1 << 62, 0  # then a write says what is wrong
        return disk.f_bavail * disk.f_frsize, min(self._least, disk.f_blocks * disk.f_frsize // SMALL_DISK)
