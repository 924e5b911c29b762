"""SIGTERM under full load: processes drain within their deadline, and rolling restarts that retries get over."""

import asyncio

from tests.reliability.rows import ALL, SQLITE, Clients, Row
from tests.reliability.scene import Scene

FULL = Clients(insistent=12, product=4, careless=4, pace=0.02, items=10, counters=8)
WORK = 1.0
"""Seconds of it between two ends, at least."""


async def drained(scene: Scene, seconds: float) -> None:
    """`terminate` has each process end with 0, and in time."""
    until = scene.seconds + seconds
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(WORK, 3 * WORK))
        await asyncio.gather(*(slot.terminate() for slot in scene.slots))
        await asyncio.gather(*(slot.start() for slot in scene.slots))


async def rolling(scene: Scene, seconds: float) -> None:
    until = scene.seconds + seconds
    while scene.seconds < until:
        for slot in scene.slots:
            await slot.terminate()
            await slot.start()
            await asyncio.sleep(scene.chance(0, WORK))


ROWS = (
    Row(
        "drained",
        "SIGTERM of all processes at once, under full load; each ends with 0 within its deadline",
        drained,
        ALL,
        smoke=(SQLITE,),
        clients=FULL,
    ),
    Row(
        "rolling-restart",
        "SIGTERM and start of one process after another, all of them in turn",
        rolling,
        ALL,
        ingests=2,
        clients=Clients(product=4),
    ),
)
