"""Ingests settle overlay entries of counters that nobody reads."""

from collections.abc import Collection

from ingest.accept.publishing import MOST, OverlayCleanup
from shared.memory.overlay import SETTLE_WITHIN, ProcessOverlay
from shared.model.buckets import Instant, StoreMillis
from shared.model.receipts import key_of_envelope
from shared.model.words import Commit, Envelope, Receipt, Receipts
from shared.runtime.ids import EnvelopeIds
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore

LATER = StoreMillis(1 << 60)


async def test_all_that_is_due_is_settled_however_much_it_is() -> None:
    """Else more than so many envelopes in each interval would pile up, though flushers keep up."""
    clock = ManualClock()
    overlay, store = ProcessOverlay(clock), MemoryStore(clock)
    names = [f"e{number:04}" for number in range(2 * MOST + 1)]
    async with overlay.entered([Envelope(name, {"a": 1}) for name in names]):
        pass
    await store.apply(Commit(tuple(Receipt(key_of_envelope(name), LATER, envelope=name) for name in names[1:]), ()))
    clock.turn(SETTLE_WITHIN)
    await OverlayCleanup(store, overlay).settle_once()
    (entry,) = (await overlay.view(["a"]))["a"].entries
    assert entry.key == key_of_envelope(names[0])


async def test_a_crowded_overlay_says_so_and_asks_soon_for_what_comes() -> None:
    """So flushers hurry, and what they applied goes before anything is dropped that they have not applied."""
    clock = ManualClock()
    overlay, store = ProcessOverlay(clock, 400), MemoryStore(clock)
    cleanup = OverlayCleanup(store, overlay)
    for number in range(100):
        async with overlay.entered([Envelope(f"e{number:03}", {f"a{number}-{one}": 1 for one in range(40)})]):
            assert overlay.crowded == (number >= 2)
        assert overlay.backlog().increments <= 400
        await store.apply(Commit((Receipt(key_of_envelope(f"e{number:03}"), LATER, envelope=f"e{number:03}"),), ()))
        clock.turn(1)
        await cleanup.settle_once()
    assert not overlay._full, "it dropped some"


class CountingStore(MemoryStore):
    looked_up = asked = 0

    async def receipts(self, keys: Collection[str]) -> Receipts:
        self.looked_up += len(keys)
        return await super().receipts(keys)

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        self.asked += 1
        return await super().applied(first, last, limit)


async def test_envelopes_are_asked_for_together_and_those_that_are_missing_one_by_one_later() -> None:
    """A receipt that does not say its envelope is found under its key."""
    clock, ids = ManualClock(), EnvelopeIds()
    overlay, store = ProcessOverlay(clock), CountingStore(clock)
    cleanup = OverlayCleanup(store, overlay)
    names = [ids() for _ in range(100)]
    async with overlay.entered(
        [*(Envelope(name, {"a": 1}) for name in names), Envelope("key-1", {"a": 1}, retried=True)]
    ):
        pass
    late, unsaid = names[30], names[60]
    found = [Receipt(key_of_envelope(name), LATER, envelope=name) for name in names if name not in {late, unsaid}]
    await store.apply(Commit((*found, Receipt(key_of_envelope(unsaid), LATER)), ()))
    clock.turn(SETTLE_WITHIN)
    await cleanup.settle_once()
    assert (store.asked, store.looked_up) == (1, 1)
    entries = (await overlay.view(["a"]))["a"].entries
    assert {entry.key for entry in entries} == {key_of_envelope(name) for name in (late, unsaid, "key-1")}
    await store.apply(Commit((Receipt(key_of_envelope(late), LATER, envelope=late),), ()))
    clock.turn(SETTLE_WITHIN)
    await cleanup.settle_once()
    assert (store.asked, store.looked_up) == (1, 4)
    (entry,) = (await overlay.view(["a"]))["a"].entries
    assert entry.key == key_of_envelope("key-1")
