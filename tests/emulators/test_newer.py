"""A mixed fleet on Pub/Sub: what only a newer flusher can read waits for one, and is in nobody's way."""

import asyncio

import pytest

from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from shared.memory import ProcessOverlay
from shared.model.words import Envelope, Message
from shared.runtime.clock import SystemClock
from shared.runtime.retry import Stop
from shared.wire.codec import encode
from tests.contracts.broker import pull_all
from tests.contracts.store import total
from tests.emulators.pubsub_fixtures import Pubsub
from tests.world.flushing import tools_of
from tests.world.memory.store import MemoryStore

V2 = {"ce-id": "e2", "ce-source": "countersink", "ce-type": "countersink.envelope.v2"}
NEW = 30
NOBODY = 60.0


async def test_messages_of_a_newer_version_wait_for_it(pubsub: Pubsub, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as many as fit into several windows, and come again while it runs."""
    monkeypatch.setattr("flusher.flush.flusher.LEFT_FOR", 1.0)
    publisher, client = pubsub.publisher(), pubsub.client()
    data = b'{"counter":"a","delta":5}' + b" " * 1_000
    await publisher.publish([Message(data, V2 | {"ce-id": str(number)}) for number in range(NEW)])
    clock, subscription = SystemClock(), pubsub.subscription(client)
    store = MemoryStore(clock)
    tools = tools_of(store, subscription, ProcessOverlay(clock), clock)
    flusher = Flusher(tools, FlushPolicy(0.05, 100, 10_000), topic="t", lease=60.0)
    stop = Stop()
    running = asyncio.create_task(flusher.run(stop, 5.0))
    async with asyncio.timeout(NOBODY):
        while sum(count for count, seconds in client.deadlines if seconds) <= NEW:
            await asyncio.sleep(0.02)
        await publisher.publish([encode(Envelope("e1", {"a": 1}, {}, (), int(clock.now() * 1000)))])
        while await total(store, "a") != 1:
            await asyncio.sleep(0.02)
    stop.set()
    await running
    await subscription.close()
    left = await pull_all(pubsub.subscription(), NEW)
    assert {delivery.message.attributes["ce-id"] for delivery in left} == {str(number) for number in range(NEW)}
    assert await total(store, "a") == 1
