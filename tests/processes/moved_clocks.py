"""Moves the clocks of one process under test: wall, monotonic and boot clock can be moved apart while it runs.

    clocks = Clocks(library, folder)
    process = subprocess.Popen(command, env=os.environ | clocks.environment)
    clocks.move(real=30 * DAY)

Seconds are added to what the kernel says. A process that is told `clocks.environment` passes it on to its children.
"""

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.needs import missing, program

DAY: Final = 86_400.0
_SOURCE: Final = Path(__file__).with_name("moved_clocks.c")
_FORMAT: Final = struct.Struct("=qqq")
_NANOS: Final = 1_000_000_000


LIBRARY: Final = "moved.so"


def build(folder: Path) -> None:
    """Compile the library into the folder."""
    if sys.platform != "linux":
        missing("clocks can be moved on Linux alone")
    compiler = program("cc", "gcc")
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", str(folder / LIBRARY), str(_SOURCE)]
    done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"{compiler} can't build {_SOURCE.name}: install gcc and libc6-dev. {done.stderr}")


class Clocks:
    """The three clocks of the processes that run with `environment`. Offsets stay until they are moved again."""

    def __init__(self, library: Path, folder: Path) -> None:
        """`folder` takes the small file through which the library is told."""
        handle, name = tempfile.mkstemp(prefix="clocks-", dir=folder)
        os.write(handle, _FORMAT.pack(0, 0, 0))
        self._map = mmap.mmap(handle, _FORMAT.size)
        os.close(handle)
        self.environment: Final = {"LD_PRELOAD": str(library), "MOVED_CLOCKS": name}

    def move(self, *, real: float = 0, monotonic: float = 0, boot: float = 0) -> None:
        """Move these clocks by so many seconds, on top of earlier moves. Only the wall clock may go back."""
        before = _FORMAT.unpack_from(self._map)
        by = (real, monotonic, boot)
        _FORMAT.pack_into(self._map, 0, *(was + int(more * _NANOS) for was, more in zip(before, by, strict=True)))

    def move_to(self, other: "Clocks") -> None:
        self._map[:] = other._map[:]

    def move_all(self, seconds: float) -> None:
        """Time passes."""
        self.move(real=seconds, monotonic=seconds, boot=seconds)

    @contextlib.contextmanager
    def stopped(self, pid: int, seconds: float) -> Iterator[None]:
        """The process does nothing inside the block, and finds afterwards that so much time has passed."""
        _stop(pid)
        try:
            yield
            self.move_all(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def suspended(self, pid: int, seconds: float) -> Iterator[None]:
        """As `stopped`, by the machine's sleep: the monotonic clock does not count it."""
        _stop(pid)
        try:
            yield
            self.move(real=seconds, boot=seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


def _stop(pid: int) -> None:
    """Return when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 10
    while any(_state(task) not in "tTZX" for task in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} does not stop")
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
