"""Finds out what kind of file system a folder is on."""

from pathlib import Path
from typing import Final

NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "fuse.sshfs"}
SHARED: Final = {"9p", "virtiofs", "drvfs", "vboxsf", "fuse.glusterfs", "fuse.gcsfuse"}
"""These may be shared with other machines."""
MEMORY: Final = {"tmpfs", "ramfs"}
LAYERS: Final = {"overlay", "aufs", "fuse.fuse-overlayfs"}
"""A container's own file systems, which are deleted with it."""
_MOUNTS: Final = Path("/proc/mounts")


def mounts() -> str:
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""  # not Linux


def kind_of(folder: Path, table: str) -> str:
    """The kind of the file system, or an empty string if it is unknown.

    The longest mount point above the folder decides; of several mounts on one point, the last.
    """
    best, kind = "", ""
    for line in table.splitlines():
        _, point, this, *_ = line.split(" ")
        if len(point) >= len(best) and folder.resolve().is_relative_to(point.replace("\\040", " ")):
            best, kind = point, this
    return kind
