"""Says what a folder is on, and refuses new messages while its disk still has room to apply old ones.

What it is on: which file system, and whether a volume that ends with a container or a Pod.
"""

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shared.model.errors import StorageFullError

NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "fuse.sshfs"}
SHARED: Final = {"9p", "virtiofs", "drvfs", "vboxsf", "fuse.glusterfs", "fuse.gcsfuse"}
"""These may be shared with other machines."""
MEMORY: Final = {"tmpfs", "ramfs"}
_LAYERS: Final = {"overlay", "aufs", "fuse.fuse-overlayfs"}
"""A container's own file systems, which are deleted with it."""
_EMPTY_DIR: Final = "/volumes/kubernetes.io~empty-dir/"
"""Kubernetes deletes these volumes with their Pod, though the file system that they are on outlives it."""
_ANONYMOUS: Final = re.compile("/volumes/[0-9a-f]{64}/_data$")
"""An unnamed volume of Docker or Podman. The next container gets another one."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A row of the table of mounts."""

    point: str = ""
    kind: str = ""
    """The kind of the file system; empty if it is unknown."""
    root: str = ""
    """The folder in that file system which is mounted."""


def mounts() -> str:
    """The kernel's table of mounts; empty if this is not Linux."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/mountinfo").read_text()
    return ""


def mount_of(folder: Path, table: str) -> Mount:
    """The longest mount point above the folder decides; of several mounts on one point, the last."""
    folder, best = folder.resolve(), Mount()
    for mount in mounts_in(table):
        if len(mount.point) >= len(best.point) and folder.is_relative_to(mount.point):
            best = mount
    return best


def why_ephemeral(folder: Path, table: str) -> str | None:
    """The kind of volume, if it is deleted with its container or Pod, or at the next boot. Otherwise None."""
    _, kind, root = mount_of(folder, table)
    if kind in MEMORY:
        return f"in memory ({kind})"
    if kind in _LAYERS:
        return f"a container's own layer ({kind})"
    if _EMPTY_DIR in f"{root}/":
        return "an emptyDir volume of Kubernetes"
    return "a container's volume without a name" if _ANONYMOUS.search(root) else None


def mounts_in(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        row, _, rest = line.partition(" - ")
        if rest:
            root, point = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), text) for text in row.split(" ")[3:5])
            yield Mount(point, rest.split(" ")[0], root)


SMALL_DISK: Final = 10
"""The reserve is at most the size of the disk divided by this."""
GROWTH: Final = 6
"""Bytes by which the file may grow to apply one pending byte. 4.6 were measured where each increment has a short id,
and so a receipt."""
LOG_GROWTH: Final = 16
"""Bytes by which the log may grow for one pending byte, since each commit writes all pages that it touches."""
LONGEST_LOG: Final = 24 * 2**20
"""Bytes at which the log has surely been started again."""


class Reserve:
    """Checks free space. Call it where waiting does no harm: a look takes microseconds, unless the disk hangs."""

    def __init__(
        self, file: Path, least: int, *, applied: bool = True, look: Callable[[Path], os.statvfs_result] = os.statvfs
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
            free, kept = self._free_and_kept()
        except OSError:
            return  # a write will report what is wrong
        needed = kept + pending
        if self._applied:
            needed = max(kept, min(LOG_GROWTH * pending, LONGEST_LOG)) + GROWTH * pending + self._in_the_log(db)
        full = f"the disk of {self._file.name} is nearly full, {free >> 20} MiB are free"
        if large and free < 2 * needed:
            raise StorageFullError(
                f"{full}, and exports leave the rest to increments: free some space, or delete exports that you have"
                " read (DELETE /v1/jobs/{id})"
            )
        if free < needed:
            raise StorageFullError(
                f"{full}: free some space; the rest is kept for what was accepted before (COUNTERSINK_DISK_RESERVE)"
            )

    def spare(self) -> int:
        """Free bytes beyond those that are kept. Raises `OSError` if the disk can't be asked."""
        free, kept = self._free_and_kept()
        return free - kept

    def _free_and_kept(self) -> tuple[int, int]:
        disk = self._look(self._file.parent)
        return disk.f_bavail * disk.f_frsize, min(self._least, disk.f_blocks * disk.f_frsize // SMALL_DISK)

    def _in_the_log(self, db: sqlite3.Connection) -> int:
        """Bytes by which the file grows when the log is moved into it. The log itself keeps its length after that."""
        (pages,), (size,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        try:
            return max(int(pages) * int(size) - os.stat(self._file).st_size, 0)  # noqa: PTH116 (for each message)
        except OSError:
            return 0
