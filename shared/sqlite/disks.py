"""What kind of file system a folder is on."""

from pathlib import Path
from typing import Final

NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "fuse.sshfs"}
SHARED: Final = {"9p", "virtiofs", "drvfs", "vboxsf", "fuse.glusterfs", "fuse.gcsfuse"}
"""Perhaps with other machines."""
MEMORY: Final = {"tmpfs", "ramfs"}
LAYERS: Final = {"overlay", "aufs", "fuse.fuse-overlayfs"}
"""A container's own: gone with it."""
_MOUNTS: Final = Path("/proc/mounts")


def mounts() -> str:
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""  # no Linux


def kind_of(folder: Path, table: str) -> str:
    """By the longest mount point that the folder is under, the last of several on one point. Empty if none."""
    best, kind = "", ""
    for line in table.splitlines():
        _, point, this, *_ = line.split(" ")
        if len(point) >= len(best) and folder.resolve().is_relative_to(point.replace("\\040", " ")):
            best, kind = point, this
    return kind
