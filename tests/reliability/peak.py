"""Watches the memory of processes: the largest resident set that any of them ever had."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

LOOK = 0.2
"""Seconds. The kernel keeps the highest mark of each, so only what happens just before an end is missed."""
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Peak:
    """Of the processes that it is told of, and of their children."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self.bytes = 0

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self.look()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK)

    def look(self) -> None:
        for pid in self._pids():
            self.bytes = max(self.bytes, *(_peak_of(one) for one in (pid, *_children_of(pid))))


def _peak_of(pid: int) -> int:
    with contextlib.suppress(OSError):  # it is gone
        if found := _PEAK.search(Path(f"/proc/{pid}/status").read_text()):
            return 1024 * int(found[1])
    return 0


def _children_of(pid: int) -> list[int]:
    """All generations: what runs a process of ours may be a shell or a tracer."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *_children_of(int(child))]
    return found
