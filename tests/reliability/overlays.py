"""Redis as the overlay: emptied, killed, frozen, and left by all; readings are exact, or say that they are not."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.reliability.rows import CLOUD, Clients, Row
from tests.reliability.scene import Scene

ASLEEP = (0.5, 4.0)
AWAKE = (0.2, 1.0)
EXACT = 180.0
"""Seconds until readings of all ingests are exact again, at most."""
Fault = Callable[[Scene], Coroutine[Any, Any, None]]


def exact_between(fault: Fault) -> Callable[[Scene, float], Coroutine[Any, Any, None]]:
    """Over and over, each time when readings are exact; and at the end they are again."""

    async def do(scene: Scene, seconds: float) -> None:
        await _exact(scene)
        until = scene.seconds + seconds
        while scene.seconds < until:
            await fault(scene)
            await asyncio.sleep(scene.chance(*AWAKE))
            await _exact(scene)

    return do


async def _exact(scene: Scene) -> None:
    async with asyncio.timeout(EXACT):
        for ingest in scene.ingests:
            while not await _says_exact(scene, ingest.url):
                await asyncio.sleep(0.05)


async def _says_exact(scene: Scene, url: str) -> bool:
    readings = await scene.calls.read(url, "", scene.calls.truths.open())
    return bool(readings) and all(reading["exact"] for reading in readings)


async def flushed(scene: Scene) -> None:
    await asyncio.to_thread(scene.redis.ask, "FLUSHALL")


async def killed(scene: Scene) -> None:
    """It keeps nothing."""
    await asyncio.to_thread(scene.redis.kill)
    await asyncio.sleep(scene.chance(*AWAKE))
    await asyncio.to_thread(scene.redis.start)


async def frozen(scene: Scene) -> None:
    scene.redis.hang()
    await asyncio.sleep(scene.chance(*ASLEEP))
    scene.redis.go_on()


async def thrown_out(scene: Scene) -> None:
    for _ in range(10):
        await asyncio.to_thread(scene.redis.ask, "CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(scene.chance(0, 0.2))


def _row(name: str, fault: str, do: Fault, *, smoke: bool = False) -> Row:
    whole = f"{fault}, again and again, each time when readings are exact again"
    clients = Clients(readers=4)
    tested = (CLOUD,) if smoke else ()
    return Row(name, whole, exact_between(do), (CLOUD,), smoke=tested, ingests=2, clients=clients, redis=True)


ROWS = (
    _row("redis-flushed", "FLUSHALL on the fleet's Redis", flushed),
    _row("redis-killed", "SIGKILL of Redis, and it is started again empty", killed, smoke=True),
    _row("redis-frozen", f"SIGSTOP of Redis for {ASLEEP[0]:g} to {ASLEEP[1]:g} s", frozen),
    _row("redis-clients-killed", "CLIENT KILL of all connections, ten times in a second", thrown_out),
)
