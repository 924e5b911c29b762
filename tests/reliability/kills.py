"""SIGKILL, at random moments: of flushers, of ingests, of everything at once."""

import asyncio
import os
import signal

from tests.processes.fleet.slots import Slot
from tests.reliability.rows import ALL, SQLITE, Row
from tests.reliability.scene import Scene

PAUSE = (0.3, 1.5)
"""Seconds between two kills."""


async def again(slot: Slot) -> None:
    """Another one in its place at once."""
    await slot.kill()
    await slot.start()


async def flushers(scene: Scene, seconds: float) -> None:
    await _one_by_one(scene, scene.flushers, seconds)


async def ingests(scene: Scene, seconds: float) -> None:
    await _one_by_one(scene, scene.ingests, seconds)


async def _one_by_one(scene: Scene, slots: list[Slot], seconds: float) -> None:
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*PAUSE))
        await again(scene.pick(slots))


async def everything(scene: Scene, seconds: float) -> None:
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*PAUSE))
        await asyncio.gather(*(slot.kill() for slot in scene.slots))
        await asyncio.gather(*(slot.start() for slot in scene.slots))


async def of_ingests(scene: Scene, seconds: float) -> None:
    """The process that they belong to has to start others itself."""
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*PAUSE))
        running = scene.pick(scene.ingests).running
        assert running
        if workers := running.children():  # none for a moment, if all were killed one after the other
            os.kill(scene.random.choice(workers), signal.SIGKILL)
    await scene.busy()


ROWS = (
    Row(
        "flushers-killed",
        "SIGKILL of one flusher after another, each started again at once",
        flushers,
        ALL,
    ),
    Row(
        "ingests-killed",
        "SIGKILL of one ingest after another, each started again at once",
        ingests,
        ALL,
        ingests=2,
    ),
    Row(
        "all-killed",
        "SIGKILL of all processes at the same moment, again and again",
        everything,
        ALL,
        long=120.0,
    ),
    Row(
        "workers-killed",
        "SIGKILL of one worker after another of an ingest with two of them",
        of_ingests,
        (SQLITE,),
        ingest=("ingest", "--port", "0", "--workers", "2"),
    ),
    Row(
        "up-killed",
        "SIGKILL of `countersink up`, all in one process, started again at once",
        ingests,
        (SQLITE,),
        flushers=0,
        ingest=("up", "--port", "0"),
    ),
)
