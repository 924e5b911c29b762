"""A `count` that another application stored as something else than an integer: read for what it is, or said."""

import pytest

from countersink_server.cli.audit import AGREES, DIFFERS, judge
from shared.counters.reader import Reader
from shared.counters.setter import ChangeRequest, Setter
from shared.datastore.keys import COUNT, NUM_SHARDS, said
from shared.datastore.store import DatastoreStore
from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import CrowdedError, InexactError, RefusedError, ShardFullError
from shared.model.words import Receipt, Total
from tests.contracts.store import commit
from tests.emulators.datastore_fixtures import Datastore, audited
from tests.world.manual_clock import ManualClock
from tests.world.memory.exact_overlay import ExactOverlay

WRONG = {"string_value": "5", "boolean_value": True, "null_value": 0, "double_value": 2.5}
NAMES = {"string_value": "string", "boolean_value": "boolean", "null_value": "null", "double_value": "double"}


async def total(store: DatastoreStore, counter: str = "a") -> Total:
    async with store.snapshot() as snapshot:
        totals, _ = await snapshot.read([counter], ())
    return totals[counter]


async def test_a_whole_number_stored_as_a_double_is_that_number(datastore: Datastore) -> None:
    """And the next sum is added to it."""
    store = await datastore.store()
    await store.apply(commit(("a", 1)))
    await datastore.put(datastore.place.shard("a", 0), {COUNT: {"double_value": 41.0}})
    assert (await total(store)).value == 41
    assert not (await total(store)).flaw
    await (await datastore.store()).apply(commit(("a", 1)))
    assert (await total(store)).value == 42
    await datastore.put(datastore.place.config("a"), {NUM_SHARDS: {"double_value": 1.0}})
    assert await store.shards(["a"]) == {"a": 1}
    assert (await total(store)).value == 42
    line = await audited(store)
    assert (line.held, line.flaw, judge(line, 0.0).mark == AGREES) == (42, "", False)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("what", ["shard", "config"])
async def test_what_is_no_whole_number_is_never_taken_for_nothing(
    datastore: Datastore, kind: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Readings are not exact, so that nobody sets the counter by them; the log and the audit name the entity."""
    store = await datastore.store()
    await store.apply(commit(("a", 3)))
    place = datastore.place
    key, name = (place.shard("a", 0), COUNT) if what == "shard" else (place.config("a"), NUM_SHARDS)
    await datastore.put(key, {name: {kind: WRONG[kind]}})
    flaw = f"{name} of {said(key)} is no whole number, but a {NAMES[kind]}"
    assert (await total(store)).flaw == flaw
    clock = ManualClock()
    overlay = ExactOverlay(clock)
    reader = Reader(store, overlay, clock, 0.0)
    (reading,) = await reader.read(["a"])
    assert not reading.exact
    logged = f"counter 'a' can't be read exactly: {flaw}. Its application has to correct it"
    assert caplog.messages.count(logged) == 1
    with pytest.raises(InexactError, match="is no whole number"):
        await Setter(reader, store, overlay, clock, Millis(10**9)).set("a", ChangeRequest("set", 7))
    line = await audited(store)
    verdict = judge(line, 0.0)
    assert (verdict.mark, flaw in verdict.said) == (DIFFERS, True)


@pytest.mark.parametrize("kind", WRONG)
async def test_nothing_is_added_to_it(datastore: Datastore, kind: str) -> None:
    """The server would put the sum in its place. There are other shards."""
    store = await datastore.store()
    await store.apply(commit(("a", 3)))
    await datastore.put(datastore.place.shard("a", 0), {COUNT: {kind: WRONG[kind]}})
    fresh = await datastore.store()
    with pytest.raises(ShardFullError):
        await fresh.apply(commit(("a", 4)))
    await datastore.put(datastore.place.config("b"), {NUM_SHARDS: {kind: WRONG[kind]}})
    with pytest.raises(RefusedError, match="num_shards of"):
        await fresh.apply(commit(("b", 4)))


async def test_a_double_that_has_no_room_for_ones_is_not_added_to(datastore: Datastore) -> None:
    store = await datastore.store()
    await store.apply(commit(("a", 3)))
    await datastore.put(datastore.place.shard("a", 0), {COUNT: {"double_value": 2.0**53}})
    assert (await total(store)).value == 2**53
    fresh = await datastore.store()
    try:
        await fresh.apply(commit(("a", 1)))
    except ShardFullError:
        return
    assert (await total(store)).value == 2**53 + 1, "it was written back as an integer"


async def test_a_compaction_does_not_drop_it(datastore: Datastore) -> None:
    store = await datastore.store()
    await store.raise_shards("a", 3)
    await store.apply(commit(("a", 3)))
    await datastore.put(datastore.place.shard("a", 2), {COUNT: {"string_value": "5"}})
    with pytest.raises(CrowdedError, match="is no whole number"):
        await store.compact("a", 1, Receipt("k1", StoreMillis(10**14), "applied"))
    assert (await total(store)).flaw
