"""Counters are set, deleted and counted while the processes on the file are killed: all is accounted for, once."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from countersink import AsyncClient, Changed, UnavailableError
from tests.processes.harness import processes
from tests.world.scraping import metric

T = TypeVar("T")

CLIENTS = 3
STEPS = 25
LIVES = 3


class Traffic:
    """Each request has an id of its own, and is sent until it is answered."""

    def __init__(self) -> None:
        self.url = ""
        self.counted = 0
        self.steps = 0
        self.changes: dict[str, Changed] = {}

    async def run(self, number: int) -> None:
        for step in range(STEPS):
            if step % 5 == 4:
                await self._change(f"{number}-{step}", step)
            else:
                await self._count(f"{number}-{step}", step + 1)
            self.steps += 1

    async def _count(self, name: str, delta: int) -> None:
        await self._insist(lambda client: client.increment("c", delta, id=name))
        self.counted += delta

    async def _change(self, key: str, step: int) -> None:
        """Some are asked for once more: the answer is the same."""
        for _ in range(1 + step % 2):
            if step % 3:
                changed = await self._insist(lambda client: client.set("c", 1_000_000 * step, key=key))
            else:
                changed = await self._insist(lambda client: client.delete("c", key=key))
            assert self.changes.setdefault(key, changed) == changed

    async def _insist(self, ask: Callable[[AsyncClient], Awaitable[T]]) -> T:
        while True:
            try:
                async with AsyncClient(self.url, patience=0.5) as client:
                    return await ask(client)
            except UnavailableError:
                await asyncio.sleep(0.01)


async def test_sets_and_increments_are_counted_once_whoever_is_killed(tmp_path: Path) -> None:
    traffic = Traffic()
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1"}  # what a killed flusher held comes back
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        running = await started.start("up", "--port", "0")
        other = await started.start("ingest", "--port", "0")
        traffic.url = other.url
        clients = [asyncio.create_task(traffic.run(number)) for number in range(CLIENTS)]
        for life in range(1, LIVES):
            while traffic.steps < life * CLIENTS * STEPS // LIVES:
                await asyncio.sleep(0.002)
            await (running if life % 2 else other).end(signal.SIGKILL)
            if life % 2:
                running = await started.start("up", "--port", "0")
            else:
                other = await started.start("ingest", "--port", "0")
            traffic.url = other.url
        await asyncio.gather(*clients)
        async with asyncio.timeout(60):
            while await metric(running.url, "countersink_pending_increments"):
                await asyncio.sleep(0.02)
        async with AsyncClient(running.url) as client:
            left = (await client.get("c", max_age=0)).value
        assert sum(one.before - one.after for one in traffic.changes.values()) + left == traffic.counted
        assert await metric(running.url, "countersink_drift_increments") == 0
        audit = await started.command("audit")
        assert (audit.code, "0 differ" in audit.out) == (0, True), audit
