"""A command that runs Countersink on a disk that is told to be small: for where nobody may mount one.

`python -m tests.processes.small_disk FOLDER BYTES PYTHON -m countersink …`
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Final

BLOCK: Final = 4_096


def small(folder: Path, size: int) -> os.statvfs_result:
    """As if the folder were a disk of its own, by what is in it."""
    used = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    free = max(size - used, 0) // BLOCK
    return os.statvfs_result((BLOCK, BLOCK, size // BLOCK, free, free, 0, 0, 0, 0, 255))


def main() -> None:
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    os.statvfs = lambda path: small(folder, size)
    del sys.argv[1:4]
    assert sys.argv[1:3] == ["-m", "countersink"]
    del sys.argv[1:3]
    runpy.run_module("countersink", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
