"""SIGSTOP and SIGCONT: of flushers for longer than their leases, and of the emulators."""

import asyncio

from tests.processes.fleet.pairs import LEASE
from tests.reliability.rows import ALL, CLOUD, Row
from tests.reliability.scene import Scene

ASLEEP = (1.2 * LEASE, 2 * LEASE)
"""Seconds: what a flusher holds is somebody else's before it commits that."""
AWAY = (1.0, 8.0)
AWAKE = (0.5, 2.0)


async def flushers(scene: Scene, seconds: float) -> None:
    """One, or all of them."""
    until = scene.seconds + seconds
    while scene.seconds < until:
        slots = scene.random.choice(([scene.pick(scene.flushers)], scene.flushers))
        for slot in slots:
            slot.freeze()
        await asyncio.sleep(scene.chance(*ASLEEP))
        for slot in slots:
            slot.thaw()
        await asyncio.sleep(scene.chance(*AWAKE))


async def emulator(scene: Scene, seconds: float) -> None:
    until = scene.seconds + seconds
    while scene.seconds < until:
        scene.hurt.freeze()
        await asyncio.sleep(scene.chance(*AWAY))
        scene.hurt.thaw()
        await asyncio.sleep(scene.chance(*AWAKE))


ROWS = (
    Row(
        "flushers-frozen",
        f"SIGSTOP of one flusher or all for {ASLEEP[0]:g} to {ASLEEP[1]:g} s, longer than their leases of {LEASE} s;"
        " then SIGCONT, and they commit late",
        flushers,
        ALL,
    ),
    Row(
        "broker-frozen",
        f"SIGSTOP of the Pub/Sub emulator for {AWAY[0]:g} to {AWAY[1]:g} s, again and again",
        emulator,
        (CLOUD,),
        hurt="broker",
    ),
    Row(
        "store-frozen",
        f"SIGSTOP of the Datastore emulator for {AWAY[0]:g} to {AWAY[1]:g} s, again and again",
        emulator,
        (CLOUD,),
        hurt="store",
    ),
)
