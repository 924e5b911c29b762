"""Finds out what a folder is on: which file system, and whether a volume that ends with a container or a Pod."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

NETWORK: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "fuse.sshfs"}
SHARED: Final = {"9p", "virtiofs", "drvfs", "vboxsf", "fuse.glusterfs", "fuse.gcsfuse"}
"""These may be shared with other machines."""
MEMORY: Final = {"tmpfs", "ramfs"}
_LAYERS: Final = {"overlay", "aufs", "fuse.fuse-overlayfs"}
"""A container's own file systems, which are deleted with it."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
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
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""  # not Linux


def mount_of(folder: Path, table: str) -> Mount:
    """The longest mount point above the folder decides; of several mounts on one point, the last."""
    folder, best = folder.resolve(), Mount()
    for mount in _mounts_in(table):
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
    if _ANONYMOUS.search(root):
        return "a container's volume without a name"
    return None


def points(table: str) -> set[str]:
    """Where something is mounted."""
    return {mount.point for mount in _mounts_in(table)}


def _mounts_in(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        row, _, rest = line.partition(" - ")
        if rest:
            _, _, _, root, point, *_ = row.split(" ")
            yield Mount(_plain(point), rest.split(" ")[0], _plain(root))


def _plain(text: str) -> str:
    """The text, with the kernel's octal codes replaced."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
