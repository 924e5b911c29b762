"""The network between our processes and the emulators: connections cut, answers lost, everything held back, or slow."""

import asyncio
import time

import grpc
from google.pubsub_v1 import types

from ingest.accept import spool
from tests.emulators.front import front
from tests.emulators.proxy import Proxy
from tests.processes.fleet.pairs import LEASE, Emulated
from tests.reliability.rows import CLOUD, Row
from tests.reliability.scene import Scene

PAUSE = (0.1, 0.5)
"""Seconds between two cuts of one wire."""
DEAF = 1.0
"""Seconds in which an answer should come that can be lost."""
OUTAGE = 12.0
"""Seconds: longer than ingest tries to publish before it says that it can't."""
SPOOLED = (2.0, 6.0)
AWAKE = 3.0
FORWARDED = 60.0
"""Seconds for the spool to be empty again, at most."""
REFUSALS = (
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
)
NOTICED = 30.0
"""Seconds until an ingest knows that its subscription is missing, at most."""
LATENCY = 0.1
RATE = 100_000.0


def wires(scene: Scene) -> tuple[Proxy, ...]:
    return scene.ingest_wire, scene.broker_wire, scene.store_wire


async def cut(scene: Scene, seconds: float) -> None:
    """Publishes, pulls, commits and acks whose answers are lost: most have happened, and nobody knows."""
    met = await asyncio.gather(*(_cut(scene, wire, seconds) for wire in wires(scene)))
    assert all(met), f"no answer was on its way on some wire: {met}"


async def _cut(scene: Scene, wire: Proxy, seconds: float) -> int:
    """How often an answer was on its way."""
    until = scene.seconds + seconds
    met = 0
    while scene.seconds < until:
        await asyncio.sleep(scene.chance(*PAUSE))
        before = wire.lost
        wire.lose_answers()
        for _ in range(50):
            await asyncio.sleep(DEAF / 50)
            if wire.lost > before:
                met += 1
                break
        wire.cut()
    return met


async def away(scene: Scene, seconds: float) -> None:
    """Nothing is taken, or everything is and nothing answered. Who is told to end meanwhile does so in time."""
    until = scene.seconds + seconds
    refused = 0
    while scene.seconds < until:
        refused += 1
        for wire in wires(scene):
            await _leave(wire, refused=refused % 2 == 1)
        begun = scene.seconds
        ending = (scene.ingests[-1], scene.flushers[-1])
        await asyncio.sleep(scene.chance(0, 1))  # so that something is under way
        await asyncio.gather(*(slot.terminate() for slot in ending))
        before = scene.calls.errors["503"]
        async with asyncio.timeout(OUTAGE):
            while scene.calls.errors["503"] == before:
                await asyncio.sleep(0.05)
        await asyncio.sleep(begun + OUTAGE - scene.seconds)
        for wire in wires(scene):
            await _come_back(wire, refused=refused % 2 == 1)
        await asyncio.gather(*(slot.start() for slot in ending))
        await asyncio.sleep(AWAKE)


async def _leave(wire: Proxy, *, refused: bool) -> None:
    if refused:
        await wire.go()
    else:
        wire.freeze()


async def _come_back(wire: Proxy, *, refused: bool) -> None:
    if refused:
        await wire.come()
    else:
        wire.thaw()


async def spooled(scene: Scene, seconds: float) -> None:
    """The broker alone is away. Nobody may notice, not even when ingest is killed meanwhile."""
    until = scene.seconds + seconds
    ingest = scene.ingests[0]
    while scene.seconds < until:
        for wire in (scene.ingest_wire, scene.broker_wire):
            await wire.go()
        await asyncio.sleep(scene.chance(*SPOOLED) / 2)
        await scene.busy()
        await ingest.kill()
        await ingest.start()
        await scene.busy()
        assert (await scene.calls.get(f"{ingest.url}/readyz"))[0] == 200, "not ready, though there is a spool"
        await asyncio.sleep(scene.chance(*SPOOLED) / 2)
        for wire in (scene.ingest_wire, scene.broker_wire):
            await wire.come()
        await _shows(scene, "countersink_spooling 0.0", FORWARDED)


async def _shows(scene: Scene, metric: str, within: float) -> None:
    """Until the first ingest shows that metric, with that value."""
    async with asyncio.timeout(within):
        while metric not in (await scene.calls.get(f"{scene.ingests[0].url}/metrics"))[1].splitlines():
            await asyncio.sleep(0.1)


async def refused(scene: Scene, seconds: float) -> None:
    """Pub/Sub answers, and refuses everything. Nobody may notice, and nobody may give up for good."""
    until, turn = scene.seconds + seconds, 0
    emulator = scene.pair.settings["PUBSUB_EMULATOR_HOST"]
    async with front(emulator) as before:
        while scene.seconds < until:
            before.codes[""] = REFUSALS[turn % len(REFUSALS)]
            turn += 1
            for wire in (scene.ingest_wire, scene.broker_wire):
                wire.lead_to(before.address)
            await scene.busy()
            await asyncio.sleep(scene.chance(*SPOOLED))
            await scene.busy()
            for wire in (scene.ingest_wire, scene.broker_wire):
                wire.lead_to(emulator)
            await _shows(scene, "countersink_spooling 0.0", spool.PAUSE + FORWARDED)
        assert before.refused, "nobody was refused anything"


async def deleted(scene: Scene, seconds: float) -> None:
    """The spool takes what comes, as soon as somebody looks; what was published before is in the topic."""
    assert isinstance(scene.pair, Emulated)
    until, pubsub = scene.seconds + seconds, scene.pair.pubsub
    begun = int(time.time()) - 1
    while scene.seconds < until:
        await pubsub.delete_subscription()
        await _shows(scene, 'countersink_subscription_missing{of="counts"} 1.0', NOTICED)
        await scene.busy()
        assert (await scene.calls.get(f"{scene.ingests[0].url}/readyz"))[0] == 200, "not ready, though there is a spool"
        place = pubsub.place
        made = types.Subscription.pb()(name=place.subscription, topic=place.topic, ack_deadline_seconds=LEASE)
        await pubsub.client().create_subscription(made)
        seek = types.SeekRequest.pb()(subscription=place.subscription)
        seek.time.FromSeconds(begun)
        await pubsub.change("Subscriber/Seek", seek)
        await _shows(scene, "countersink_spooling 0.0", FORWARDED)


async def slow(scene: Scene, seconds: float) -> None:
    for wire in wires(scene):
        wire.slow(LATENCY, RATE)
    await asyncio.sleep(seconds)
    for wire in wires(scene):
        wire.fast()


ROWS = (
    Row(
        "cut",
        "connections to broker and store cut at random moments, mostly when the answer to a publish, pull, commit or"
        " ack had been held back",
        cut,
        (CLOUD,),
        smoke=(CLOUD,),
        wires=True,
    ),
    Row(
        "away",
        f"broker and store away for {OUTAGE:g} s, by turns refusing connections and taking everything without a word;"
        " without a spool; meanwhile one ingest and one flusher get SIGTERM, and end in time",
        away,
        (CLOUD,),
        ingests=2,
        wires=True,
        ingest_settings={"COUNTERSINK_SPOOL": "off"},
        short=1.0,
    ),
    Row(
        "broker-away",
        "the broker refuses connections for some seconds, and ingest spools; meanwhile it gets SIGKILL, and goes on",
        spooled,
        (CLOUD,),
        smoke=(CLOUD,),
        wires=True,
        refusals=frozenset(),
    ),
    Row(
        "refused",
        "Pub/Sub answers everything with UNIMPLEMENTED, PERMISSION_DENIED, NOT_FOUND, FAILED_PRECONDITION or"
        " INVALID_ARGUMENT, one after the other, for some seconds each; ingest spools meanwhile",
        refused,
        (CLOUD,),
        wires=True,
        refusals=frozenset(),
        short=1.0,
    ),
    Row(
        "subscription-deleted",
        "the subscription is deleted, with what waits in it, and made again some seconds later; ingest spools"
        " meanwhile, and a seek brings back what the topic retained",
        deleted,
        (CLOUD,),
        refusals=frozenset(),
        short=1.0,
    ),
    Row(
        "slow",
        f"{LATENCY * 1000:g} ms more in each direction, and {RATE / 1000:g} kB/s, to broker and store",
        slow,
        (CLOUD,),
        wires=True,
    ),
)
