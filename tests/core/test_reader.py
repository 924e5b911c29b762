"""Readers whose views of the overlay come late."""

import asyncio
from collections.abc import Mapping, Sequence

from shared.clock import ManualClock
from shared.codec import encode
from shared.memory.broker import MemoryBroker, MemoryOverlay
from shared.memory.store import MemoryStore
from shared.reader import Reader
from shared.receipts import key_of_envelope
from shared.words import Commit, Envelope, Receipt, ShardAdd, View


class SlowOverlay(MemoryOverlay):
    """Sees at once, and tells when it is let."""

    gate: asyncio.Event | None = None

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        views = await super().view(counters)
        if self.gate is not None:
            await self.gate.wait()
        return views


async def test_a_view_from_before_the_base_is_looked_at_again() -> None:
    """It may hold what has been applied and removed since, for which that base did not ask: it would count twice."""
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    overlay = SlowOverlay(broker)
    reader = Reader(store, overlay, clock, 1.0)
    await broker.publish([encode(Envelope("e", {"a": 5}))])

    overlay.gate = asyncio.Event()
    late = asyncio.create_task(reader.read(["a"]))
    await asyncio.sleep(0)
    gate, overlay.gate = overlay.gate, None

    (held,) = await broker.pull(1, 1_000, 0)
    time = await store.apply(Commit((Receipt(key_of_envelope("e"), 1 << 60),), (ShardAdd("a", 0, 5, 1),)))
    await broker.ack([held.token], time)
    assert [reading.value for reading in await reader.read(["a"])] == [5]
    gate.set()
    assert [reading.value for reading in await late] == [5]
