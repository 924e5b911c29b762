"""Places for processes: what runs there is killed, stopped, frozen and started again."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.processes.harness import Processes, Running

DRAIN = 5
"""Seconds of COUNTERSINK_DRAIN_TIMEOUT."""
LONGEST_END = DRAIN + 8.0
"""After SIGTERM: the drain, pulls that end by themselves, and what a small machine takes."""


class Process(NamedTuple):
    """An ingest that runs, or has run."""

    url: str
    known: dict[str, int]
    """What it, not one before it in its place, has answered: bit masks per counter."""


@dataclass
class Slot:
    """One at a time. Whoever changes what runs here, or has frozen it, has it for himself meanwhile: `busy`."""

    started: Processes
    command: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    within: Sequence[str] = ()
    """What the process is started by."""
    running: Running | None = None
    url: str = ""
    """Of what runs, or ran last; the next one has the same if the command names a port."""
    frozen: bool = False
    busy: bool = False
    known: dict[str, int] = field(default_factory=dict)
    """Of what runs here now."""
    deaths: list[float] = field(default_factory=list)
    """When one was killed, and left its leases to run out."""

    def process(self) -> Process:
        assert self.running
        return Process(self.running.url, self.known)

    def up(self) -> bool:
        """Somebody may ask it; frozen, it answers later or never."""
        return self.running is not None and (self.frozen or not self.busy)

    async def start(self) -> None:
        assert self.running is None
        self.known = {}
        self.running = await self.started.start(*self.command, within=self.within, **self.settings)
        if "--port" in self.command:
            self.url = self.running.url

    async def kill(self) -> None:
        running, self.running = self.running, None
        assert running
        await running.end(signal.SIGKILL)
        self.frozen = False
        self.deaths.append(asyncio.get_running_loop().time())

    async def terminate(self) -> None:
        """It drains, within its time, and says that all is well."""
        self.thaw()
        running, self.running = self.running, None
        assert running
        async with asyncio.timeout(LONGEST_END):
            assert await running.end(signal.SIGTERM) == 0

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.frozen = False

    def _signal(self, number: int) -> None:
        assert self.running
        os.kill(self.running.process.pid, number)
