"""A disk that is full: of others' files, of our own backlog, and the spool's; then there is room again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.reliability.rows import CLOUD, SQLITE, Clients, Row
from tests.reliability.scene import Scene
from tests.reliability.small_disk import OnSmallDisk, SmallDisk

LITTLE = 100_000
"""Bytes of room that our own backlog soon fills."""
REFUSED = 5
"""Requests that are told 507 before there is room again."""
_OF_SPOOL: dict[Path, SmallDisk] = {}
"""By the folder of the scene."""


def there(scene: Scene) -> Sequence[str]:
    assert isinstance(scene.pair, OnSmallDisk)
    return scene.pair.disk.within


async def full(scene: Scene, seconds: float) -> None:
    """Once by others all at once; once by what comes in while there is no flusher. It must go on when there is room."""
    assert isinstance(scene.pair, OnSmallDisk)
    disk, until = scene.pair.disk, scene.seconds + seconds
    (flusher,) = scene.flushers
    while scene.seconds < until:
        await disk.fill()
        await refused(scene)
        await disk.free()
        await scene.busy()
        await flusher.kill()
        await disk.fill(leave=LITTLE)
        await refused(scene)
        await flusher.start()
        await asyncio.sleep(0.2)
        await disk.free()
        await scene.busy()


async def refused(scene: Scene) -> None:
    """Because of the disk."""
    enough = scene.calls.errors["507"] + REFUSED
    async with asyncio.timeout(30):
        while scene.calls.errors["507"] < enough:
            scene.load.check()
            await asyncio.sleep(0.02)


def with_a_small_spool(scene: Scene) -> Sequence[str]:
    disk = _OF_SPOOL[scene.folder] = SmallDisk(scene.folder)
    return disk.within


async def spool_full(scene: Scene, seconds: float) -> None:
    """While the broker is away, and it comes back before there is room: what is in the spool needs none to go."""
    disk, until = _OF_SPOOL.pop(scene.folder), scene.seconds + seconds
    while scene.seconds < until:
        await scene.ingest_wire.go()
        await disk.fill(leave=LITTLE)
        await refused(scene)
        await disk.free()
        await scene.busy()
        await scene.ingest_wire.come()
        await scene.busy()
    await disk.close()


ROWS = (
    Row(
        "disk-full",
        "the disk is full, by others at once, then by our own backlog while the flusher is dead; then there is room",
        full,
        (SQLITE,),
        smoke=(SQLITE,),
        flushers=1,
        short=1.0,
        clients=Clients(foreign=0),
        place=OnSmallDisk,
        within=there,
        refusals=frozenset({503, 507}),
    ),
    Row(
        "spool-full",
        "Pub/Sub is away, and the spool's disk is full; then there is room, then Pub/Sub is back",
        spool_full,
        (CLOUD,),
        flushers=1,
        short=1.0,
        within=with_a_small_spool,
        wires=True,
        refusals=frozenset({503, 507}),
    ),
)
