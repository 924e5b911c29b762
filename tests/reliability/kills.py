"""SIGKILL, at random moments: of flushers, of ingests, of everything at once."""

import asyncio

from tests.fleet.slots import Slot
from tests.reliability.rows import BLIND, SQLITE, WRITTEN_BACK, Row
from tests.reliability.scene import Scene

PAUSE = (0.3, 1.5)
"""Seconds between two kills."""
ALL = (SQLITE, BLIND, WRITTEN_BACK)


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


ROWS = (
    Row("flushers-killed", "SIGKILL of one flusher after another, each started again at once", flushers, ALL),
    Row("ingests-killed", "SIGKILL of one ingest after another, each started again at once", ingests, ALL, ingests=2),
    Row("all-killed", "SIGKILL of all processes at the same moment, again and again", everything, ALL),
)
