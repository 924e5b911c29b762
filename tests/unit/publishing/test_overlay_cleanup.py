"""Ingests settle overlay entries of counters that nobody reads."""

from ingest.publishing.overlay_cleanup import MOST, OverlayCleanup
from shared.memory.overlay import PATIENCE, ProcessOverlay
from shared.memory.store import MemoryStore
from shared.model.envelope import Envelope
from shared.model.receipts import key_of_envelope
from shared.model.times import StoreMillis
from shared.model.words import Commit, Receipt
from shared.runtime.clock import ManualClock


async def test_all_that_is_due_is_settled_however_much_it_is() -> None:
    """Else more than so many envelopes in each interval would pile up, though flushers keep up."""
    clock = ManualClock()
    overlay, store = ProcessOverlay(clock), MemoryStore(clock)
    names = [f"e{number}" for number in range(2 * MOST + 1)]
    async with overlay.entered([Envelope(name, {"a": 1}) for name in names]):
        pass
    await store.apply(Commit(tuple(Receipt(key_of_envelope(name), StoreMillis(1 << 60)) for name in names[1:]), ()))
    clock.turn(PATIENCE)
    await OverlayCleanup(store, overlay).settle_once()
    (entry,) = (await overlay.view(["a"]))["a"].entries
    assert entry.key == key_of_envelope(names[0])
