"""What the benchmarks need of another way to count, and how its processes are started and ended."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import machine
from bench.emulators import MissingError
from bench.load import Load

_START: Final = 20.0
_END: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counting:
    """A peer that runs, with its data empty at first."""

    load: Callable[[float, int], Load]
    """Counts for so many seconds, over so many connections at once."""
    total: Callable[[], int]
    """All that was counted."""
    each: int = 1
    """Increments of an answer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to count."""

    name: str
    what: str
    safe: str
    """What of an answered increment survives which fault."""
    start: Callable[[Path], AbstractContextManager[Counting]]
    """With its data in this folder, which is empty. Raises `MissingError` if this machine can't."""


def tool(name: str, *places: str) -> str:
    """The path of a program that a peer needs."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise MissingError(f"{name} is not installed")
    return found


@contextlib.contextmanager
def started(
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    user: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process on the servers' processor, from when it is ready until the end of the block. `more`: of its
    environment.
    """
    environment = {**os.environ, **(more or {})}
    with machine.on(machine.SERVER), log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, user=user, env=environment
        )
    try:
        until = time.monotonic() + _START
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} does not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
