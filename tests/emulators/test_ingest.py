"""What an ingest learns from Datastore: how many names there are, and whether an id or a key was used before."""

import asyncio

import pytest

from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from ingest.accept import new_names
from ingest.accept.drafts import Batch, Pace, Uses
from ingest.accept.new_names import NewNames
from ingest.accept.publishing import Publishing
from ingest.api.receipts import AppliedWaits, Tracking
from shared.config.lists import NameLimit
from shared.http.shares import LOCAL
from shared.memory import ProcessOverlay
from shared.model.errors import OverloadedError
from shared.model.words import Increment
from shared.ports.store import Store
from shared.runtime.clock import SystemClock
from tests.contracts.store import commit, total
from tests.emulators.datastore_fixtures import Datastore
from tests.world.flushing import tools_of
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay

LIMITS = (NameLimit("page:", 20), NameLimit("", 25))


async def test_a_flood_through_two_processes_stops_at_the_limit(datastore: Datastore) -> None:
    store, clock = await datastore.store(), ManualClock()
    await store.apply(commit(*((f"page:old{number}", 1) for number in range(12)), ("page;", 1)))
    mine, other = (NewNames(one, ProcessOverlay(clock), LIMITS, clock) for one in (store, await datastore.store()))
    flood = [f"page:{chr(0x1F600 + number)}" for number in range(100)]
    found = await asyncio.gather(*(mine.admit([name]) for name in flood))
    admitted = [name for name, refused in zip(flood, found, strict=True) if not refused]
    assert len(admitted) == 8
    await store.apply(commit(*((name, 1) for name in admitted)))
    assert await other.admit([f"page:old{number}" for number in range(12)] + admitted) == {}
    assert {*await other.admit(["page:more", "more"])} == {"page:more"}
    clock.turn(new_names.COUNT_AGAIN)
    assert {*await mine.admit(["page:more", *admitted, *(f"more{number}" for number in range(5))])} == {
        "page:more",
        "more4",
    }


async def test_without_an_answer_no_new_name_is_admitted(datastore: Datastore) -> None:
    client = datastore.client()
    store = await datastore.store(client)
    await client.close()
    with pytest.raises(OverloadedError, match="the store does not say"):
        await NewNames(store, ProcessOverlay(ManualClock()), LIMITS, ManualClock()).check("page:1")


LONGEST = 60.0
ITEM = Increment("a", 1, "x")


def batch(plain: int, *keyed: Increment) -> Batch:
    return Batch({"b": plain}, {}, list(keyed), 1 + len(keyed))


async def second_uses(store: Store, content: Batch, key: str | None = None, *, event: bool = False) -> int:
    """What a new process learns that accepts this, and waits for it. An event is one envelope, with its ids."""
    clock = SystemClock()
    broker = MemoryBroker(clock)
    overlay = MemoryOverlay(broker)
    publishing = Publishing(broker, overlay, clock, pace=Pace(0, metered=False), max_waiting=100)
    publishing.add("other", 1)
    publishing.add_keyed(Increment("other", 1, "of another request"))
    keyed = len(content.keyed)
    if event:
        drafts, keyed = publishing.add_wholes([(key or "", content)], LOCAL, 0), 0
    else:
        drafts = publishing.add_batch(content, envelope_id=key or "")
    uses = Uses(drafts, keyed)
    await asyncio.gather(*(publishing.durable(draft) for draft in drafts))
    flusher = Flusher(
        tools_of(store, broker, overlay, clock, one_file=True), FlushPolicy(0.0, 100, 10_000), topic="t", lease=60.0
    )
    await flusher.pull_once(0)
    await flusher.flush_once()
    waits = AppliedWaits(Tracking(store, overlay), clock)
    notes = await waits.applied([draft.id for draft in drafts], LONGEST, gone=lambda: False)
    assert notes is not None
    return uses.second(notes)


async def test_the_first_use_is_none_and_all_others_are(datastore: Datastore) -> None:
    store = await datastore.store()
    for expected in (0, 1, 1):
        assert await second_uses(store, Batch(keyed=[ITEM], increments=1)) == expected
    for expected in (0, 1, 1):
        assert await second_uses(store, batch(1), "k") == expected
    assert await second_uses(store, batch(1, ITEM, Increment("a", 1, "y")), "l") == 1
    assert await second_uses(store, batch(1, ITEM, Increment("a", 1, "y"), Increment("a", 1, "z")), "l") == 3
    assert (await total(store, "a"), await total(store, "b")) == (3, 2)


async def test_an_event_counts_once_with_the_ids_in_it(datastore: Datastore) -> None:
    store = await datastore.store()
    assert await second_uses(store, Batch(keyed=[ITEM], increments=1)) == 0
    for expected in (0, 3, 3):  # the id in it was used before, which is not told of an event
        content = batch(5, ITEM, Increment("a", 10, "y"))
        assert await second_uses(store, content, "ce-1", event=True) == expected
    assert await second_uses(store, batch(7, Increment("a", 100, "z")), "ce-1", event=True) == 2
    assert (await total(store, "a"), await total(store, "b")) == (11, 5)


async def test_of_several_processes_at_once_one_is_told_that_it_is_the_first(datastore: Datastore) -> None:
    stores = [await datastore.store() for _ in range(4)]
    by_id = await asyncio.gather(*(second_uses(one, Batch(keyed=[ITEM], increments=1)) for one in stores))
    by_key = await asyncio.gather(*(second_uses(one, batch(1), "k") for one in stores))
    assert sorted(by_id) == sorted(by_key) == [0, 1, 1, 1]
    assert (await total(stores[0], "a"), await total(stores[0], "b")) == (1, 1)
