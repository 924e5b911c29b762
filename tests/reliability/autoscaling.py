"""An autoscaler starts and ends flushers by metrics that it sees late, and sometimes not at all."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from deploy.processes import free_port
from tests.processes.fleet.pairs import message
from tests.processes.fleet.slots import Slot
from tests.processes.prometheus import Prometheus, faster, prometheus
from tests.reliability.rows import CLOUD, Clients, Row
from tests.reliability.scaler import FILE, Rule, Scaler, rule
from tests.reliability.scene import Scene

FASTER: Final = 10
"""All times of the manifests are divided by it, and so is this one:"""
LATE: Final = 150.0 / FASTER
"""Seconds for which Google's metrics cannot be seen."""
SCRAPED: Final = 15.0 / FASTER
"""As PodMonitoring does."""
MISSING: Final = 0.2
"""Of the answers, so many never come."""
OUTAGE: Final = 5
"""Answers in a row that do not come while the load is high."""
GOAL: Final = 600.0 / FASTER
"""Seconds that the oldest increment waits, at most: `CountersinkNothingApplied` alerts then."""
MOST: Final = 8
"""Flushers, on this machine."""
COMMIT: Final = 0.08
"""Seconds more in each direction to the store, so that a flusher soon has enough to do."""
INTERVAL: Final = 5.0
"""Between two commits, where one takes about half a second: in a cluster, it is one second for some hundredths."""
SENDERS: Final = 14
FEW: Final = 3
"""Flushers that the high load takes, at least."""
WITHIN: Final = 200.0
"""Seconds until there is one flusher again, at most."""


class Fleet:
    """The flushers' places, and the most of them that ran at once."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.ports = [free_port() for _ in range(MOST)]
        self._slots = [Slot(scene.started, ("flusher", "--port", str(port))) for port in self.ports]
        scene.flushers += self._slots
        self.number = 0
        """Once all have started or ended."""
        self.most = 0
        self.ended = 0

    @property
    def running(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.running]

    async def scale(self, number: int) -> None:
        """The last ones get SIGTERM, drain, and say that all is well."""
        idle = [slot for slot in self._slots if not slot.running]
        await asyncio.gather(*(slot.start() for slot in idle[: max(0, number - len(self.running))]))
        ending = self.running[number:]
        await asyncio.gather(*(slot.terminate() for slot in ending))
        self.ended += len(ending)
        self.number = len(self.running)
        self.most = max(self.most, number)


def hurried() -> Rule:
    """That of the manifest, with one flusher at least."""
    found = rule(FILE.read_text())
    query = faster(found.query, FASTER)
    return replace(found, query=query, least=1, most=MOST, every=found.every / FASTER, patience=found.patience / FASTER)


class Autoscaler:
    """Asks Prometheus, and acts."""

    def __init__(self, fleet: Fleet, metrics: Prometheus, chance: random.Random) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._random = chance
        self.rule = hurried()
        self._scaler = Scaler(self.rule)
        self.outage = 0
        """Answers that will not come."""

    async def run(self) -> None:
        while True:
            value = await self._metrics.number(self.rule.query, time.time() - LATE)
            if self.outage or self._random.random() < MISSING:
                value, self.outage = None, max(0, self.outage - 1)
            running = len(self._fleet.running)
            wanted = self._scaler.wants(value, running, time.monotonic())
            if wanted != running:
                await self._fleet.scale(wanted)
            await asyncio.sleep(self.rule.every)


@asynccontextmanager
async def load(scene: Scene, senders: int) -> AsyncIterator[None]:
    """Messages of others, each with one increment."""

    async def send(number: int) -> None:
        while True:
            counter, bit, delta = scene.calls.truths.next(number)
            await scene.calls.publish(message(counter, delta), [(counter, bit, delta)])
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(send(number)) for number in range(senders)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end


async def scaled(scene: Scene, seconds: float) -> None:
    """High load for so many seconds, while there is no flusher at first; then low load until there is one."""
    scene.store_wire.slow(COMMIT, float("inf"))
    fleet = Fleet(scene)
    targets = [re.sub("^http://", "", scene.ingests[0].url), *(f"127.0.0.1:{port}" for port in fleet.ports)]
    async with prometheus(scene.folder, *targets, rules="groups: []", every=SCRAPED, up=1) as metrics:
        scaler = Autoscaler(fleet, metrics, scene.random)
        task = asyncio.create_task(scaler.run())
        try:
            async with load(scene, SENDERS):
                await asyncio.sleep(seconds / 2)
                scaler.outage = OUTAGE
                await asyncio.sleep(seconds / 2)
            async with asyncio.timeout(WITHIN):
                while fleet.number != 1:
                    await asyncio.sleep(0.2)
                    assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        oldest = await metrics.number("max(max_over_time(countersink_oldest_pending_seconds[1h]))")
    scene.store_wire.fast()
    assert fleet.most >= FEW, f"there were {fleet.most} flushers at most"
    assert fleet.ended >= FEW - 1
    assert oldest is not None
    assert 0 < oldest < GOAL, f"an increment waited for {oldest:.0f} s"


ROWS = (
    Row(
        "autoscaling",
        "an autoscaler with the rule of the ScaledObject starts and ends flushers, from none to several to one, by"
        f" metrics {LATE:g} s late, of which every fifth is missing; {SENDERS} more clients publish at first; no"
        f" increment may wait for {GOAL:g} s; in a cluster, all of these times are {FASTER} times as long",
        scaled,
        (CLOUD,),
        flushers=0,
        long=45.0,
        wires=True,
        redis=True,
        settings={"COUNTERSINK_MAX_WINDOW_BYTES": "1024", "COUNTERSINK_FLUSH_INTERVAL": str(INTERVAL)},
        clients=Clients(careless=0, insistent=2, pace=2.0, counters=40),
    ),
)
