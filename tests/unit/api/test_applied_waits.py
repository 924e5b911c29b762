"""A request that waits until its increments are applied is answered although nobody settles their entries."""

from collections.abc import Collection
from contextlib import closing

from ingest.api.receipts import HELD, AppliedWaits, Tracking
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import TransientError
from shared.model.receipts import key_of_envelope
from shared.model.words import Commit, Receipt, Receipts
from tests.interleavings.simulation.loop import VirtualLoop
from tests.interleavings.simulation.system import LoopClock
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.store import MemoryStore

KEY = key_of_envelope("e")


class Held(ExactOverlay):
    """It holds everything for ever: settling fails."""

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return keys

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        raise TransientError("Redis is away")


class CountedStore(MemoryStore):
    looks = 0

    async def receipts(self, keys: Collection[str]) -> Receipts:
        self.looks += 1
        return await super().receipts(keys)


def test_what_is_applied_ends_a_wait_though_settling_failed() -> None:
    with closing(VirtualLoop()) as loop:
        clock = LoopClock(loop)
        store = CountedStore(clock)
        waits = AppliedWaits(Tracking(store, Held(clock)), clock)

        async def apply() -> None:
            await store.apply(Commit((Receipt(KEY, StoreMillis(0)),), ()))

        async def wait() -> object:
            loop.call_later(5.5 * HELD, lambda: loop.create_task(apply()))
            return await waits.applied(["e"], 60.0, lambda: False)

        notes = loop.run_until_complete(wait())
        loop.run_until_complete(waits.stop())
        assert notes is not None
        assert 5.5 * HELD <= loop.time() <= 7 * HELD, "not after 20 seconds"
        assert store.looks <= 7, "it does not ask the store each time"
