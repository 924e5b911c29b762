"""Finds out, as far as possible, whether a folder is on a volume that is deleted with a container or a Pod."""

import re
from pathlib import Path
from typing import Final

from shared.sqlite.disks import LAYERS, MEMORY

_MOUNTS: Final = Path("/proc/self/mountinfo")
_EMPTY_DIR: Final = "/volumes/kubernetes.io~empty-dir/"
"""Kubernetes deletes these volumes with their Pod, though the file system that they are on outlives it."""
_ANONYMOUS: Final = re.compile("/volumes/[0-9a-f]{64}/_data$")
"""An unnamed volume of Docker or Podman. The next container gets another one."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def mounts() -> str:
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""  # not Linux


def why_ephemeral(folder: Path, table: str) -> str | None:
    """The kind of volume, if it is deleted with its container, its Pod or at the machine's next boot. Otherwise None.

    The longest mount point above the folder decides; of several mounts on one point, the last.
    """
    folder = folder.resolve()
    best, kind, root = "", "", ""
    for line in table.splitlines():
        _, _, _, its_root, its_point, *rest = line.split(" ")
        point = _plain(its_point)
        if len(point) >= len(best) and folder.is_relative_to(point):
            best, kind, root = point, rest[rest.index("-") + 1], _plain(its_root)
    if kind in MEMORY:
        return f"in memory ({kind})"
    if kind in LAYERS:
        return f"a container's own layer ({kind})"
    if _EMPTY_DIR in f"{root}/":
        return "an emptyDir volume of Kubernetes"
    if _ANONYMOUS.search(root):
        return "a container's volume without a name"
    return None


def points(table: str) -> set[str]:
    """Where something is mounted."""
    rows = (line.split(" ") for line in table.splitlines())
    return {_plain(row[4]) for row in rows if len(row) > 4}  # noqa: PLR2004 (the fifth column)


def _plain(text: str) -> str:
    """The text, with the kernel's octal codes replaced."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
