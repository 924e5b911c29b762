"""The store in Datastore, held to the contracts; and what is beyond them, such as a commit whose answer was lost."""

import asyncio
from typing import Any

import pytest

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import COUNT, integer
from shared.datastore.store import DatastoreStore
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError, RefusedError, ShardFullError, TransientError
from shared.model.words import MAX_SUM, SHARD_FULL, Commit, Receipt, ShardAdd
from tests.contracts.compactions import CompactionContract
from tests.contracts.finding import AppliedContract, RankedContract
from tests.contracts.removals import RemovalContract
from tests.contracts.store import LATER, ShardContract, commit, total
from tests.contracts.suites import StoreSuites
from tests.emulators.datastore_fixtures import Datastore, insist
from tests.emulators.proxy import Proxy, proxy


class InTurn:
    """Each call through another of two stores, which are as of two processes."""

    def __init__(self, *stores: DatastoreStore) -> None:
        self._stores = [*stores]

    def __getattr__(self, name: str) -> object:
        self._stores.reverse()
        return getattr(self._stores[0], name)


class TestBlind(StoreSuites, AppliedContract, RankedContract):
    """The Firestore emulator in Datastore mode."""

    # It is told what a shard holds after it has added, so it stops earlier where a sum is large.
    test_a_shard_is_full_beyond_a_line_and_up_to_it_takes_the_largest_sum = None  # type: ignore[assignment] # no test

    @pytest.fixture
    async def store(self, datastore: Datastore) -> DatastoreStore:
        return await datastore.store()


class TestBlindOfTwoProcesses(ShardContract, RemovalContract, CompactionContract):
    """What a process remembers between commits is which shards are there, and how full. Others change that."""

    # It is told what a shard holds after it has added, so it stops earlier where a sum is large.
    test_a_shard_is_full_beyond_a_line_and_up_to_it_takes_the_largest_sum = None  # type: ignore[assignment] # no test

    @pytest.fixture
    async def store(self, datastore: Datastore) -> DatastoreStore:
        return InTurn(await datastore.store(), await datastore.store())  # type: ignore[return-value] # it is, in turn


async def test_the_probe_leaves_nothing(datastore: Datastore) -> None:
    store = await datastore.store()
    assert await store.sweep(StoreMillis(LATER * 2), 10) == 0


async def test_a_shard_that_was_deleted_is_made_anew_with_its_config(datastore: Datastore) -> None:
    store, place = await datastore.store(), datastore.place
    for counter in ("a", "b"):
        await store.apply(commit(ShardAdd(counter, 3, 5, 4)))
    await datastore.delete(place.shard("a", 3), place.config("a"))
    assert await total(store, "a") == 0
    await store.apply(commit(ShardAdd("a", 3, 7, 4), ShardAdd("b", 3, 7, 4)))
    assert await store.shards(["a", "b"]) == {"a": 4, "b": 4}
    assert (await total(store, "a"), await total(store, "b")) == (7, 12)


async def test_shards_that_others_make_are_read_by_those_who_know_of_fewer(datastore: Datastore) -> None:
    here, there = await datastore.store(), await datastore.store()
    await here.apply(commit(("a", 1)))
    assert await total(here, "a") == 1
    await there.apply(commit(ShardAdd("a", 30, 10, 31)))
    time = await there.apply(commit(ShardAdd("a", 7, 100, 8)))
    async with here.snapshot() as snapshot:
        assert snapshot.time >= time
        totals, _ = await snapshot.read(["a"], ())
    assert (totals["a"].value, totals["a"].shards) == (111, 31)


async def test_a_shard_whose_config_is_gone_is_made_readable_again(datastore: Datastore) -> None:
    store, place = await datastore.store(), datastore.place
    await store.apply(commit(ShardAdd("a", 2, 5, 3)))
    await datastore.delete(place.config("a"))
    another = await datastore.store()
    await another.apply(commit(ShardAdd("a", 2, 1, 3)))
    assert await another.shards(["a"]) == {"a": 3}
    assert await total(another, "a") == 6


async def test_a_counter_that_another_process_makes_after_it_was_looked_for_is_added_to(datastore: Datastore) -> None:
    """It needs no second look: whatever was made, and compacted, meanwhile, the commit adds, and its shard is read."""
    here, there = await datastore.store(), await datastore.store()
    assert await here.shards(["a", "b", "c"]) == {}
    await there.apply(commit(("a", 10), ShardAdd("b", 3, 10, 4), ("c", MAX_SUM)))
    await there.apply(commit(("c", MAX_SUM)))
    assert await there.compact("b", 1, Receipt("compacted", LATER)) == 1
    await here.apply(commit(("a", 1), ShardAdd("b", 2, 1, 3, 3), ("c", -1)))
    assert await there.shards(["a", "b", "c"]) == {"a": 1, "b": 3, "c": 1}
    assert [await total(store, name) for store in (here, there) for name in "abc"] == [11, 11, 2 * MAX_SUM - 1] * 2


async def test_many_at_once_from_two_processes_on_one_shard(datastore: Datastore) -> None:
    stores = [await datastore.store(), await datastore.store()]
    commits = [commit(("hot", number), keys=(f"hot-{number}",)) for number in range(100)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(insist(stores[number % 2], one) for number, one in enumerate(commits)))
    assert await total(stores[0], "hot") == sum(range(100))


async def test_a_shard_that_others_fill_never_leaves_int64(datastore: Datastore) -> None:
    """What is remembered may be old. Small sums may be added on it, big ones never."""
    here, there = await datastore.store(), await datastore.store()
    await here.apply(commit(("a", 1)))
    for _ in range(2):
        await there.apply(commit(("a", MAX_SUM)))
    with pytest.raises(ShardFullError):
        await here.apply(commit(("a", MAX_SUM)))
    with pytest.raises(ShardFullError):
        await there.apply(commit(("a", 1)))
    another = await datastore.store()
    with pytest.raises(ShardFullError):
        await another.apply(commit(("a", 1)))
    assert await total(here, "a") == 2 * MAX_SUM + 1 > SHARD_FULL


async def test_big_sums_at_once_on_one_shard_all_count(datastore: Datastore) -> None:
    store = await datastore.store()
    await asyncio.gather(*(store.apply(commit(("a", 2**50 + number))) for number in range(8)))
    assert await total(store, "a") == 8 * 2**50 + sum(range(8))


async def test_what_else_an_entity_has_is_kept(datastore: Datastore) -> None:
    store, shard = await datastore.store(), datastore.place.shard("a", 0)
    await datastore.put(shard, {COUNT: {"integer_value": 40}, "theirs": {"string_value": "kept"}})
    await store.apply(commit(("a", 2)))
    (found,) = (await datastore.client().look_up([shard])).entities
    assert integer(found.entity, COUNT) == 42
    assert found.entity.properties["theirs"].string_value == "kept"


async def test_numbers_for_names_are_no_counters(datastore: Datastore) -> None:
    """An application may have the store give names. A list that showed them would never go on from there."""
    store = await datastore.store()
    await store.raise_shards("a", 1)
    for number in (5, 6):
        key = datastore.place.config("a")
        key.path[-1].id = number
        await datastore.put(key, {})
    assert [*await store.names("", "", 2)] == ["a"]
    assert [*await store.names("", "", 2, "b")] == ["a"]


async def test_what_can_never_be_stored_is_refused_and_the_rest_is_transient(datastore: Datastore) -> None:
    store = await datastore.store()
    with pytest.raises(RefusedError) as refused:
        await store.apply(commit(("a", 1), keys=("__reserved__",)))
    assert refused.value.__cause__ is not None
    with pytest.raises(RefusedError, match="bytes"):
        await store.apply(Commit(tuple(Receipt(f"{number:0>1000}", LATER) for number in range(5_000)), ()))
    assert await total(store, "a") == 0
    nobody = datastore.client("127.0.0.1:1")
    with pytest.raises(TransientError) as transient:
        await DatastoreStore(nobody).check()
    assert transient.value.__cause__ is not None


async def test_an_instant_that_has_not_come_yet_is_waited_for(datastore: Datastore) -> None:
    """A server whose clock was put back, or a bound that is too high."""
    store, client = await datastore.store(), datastore.clients[0]
    await store.apply(commit(("a", 1)))
    now = client.time.bound(datastore.clock.monotonic())
    found = await client.look_up([datastore.place.shard("a", 0)], read_time=Instant(now + 300_000))
    assert integer(found.entities[0].entity, COUNT) == 1
    with pytest.raises(TransientError, match="future"):
        await client.look_up([datastore.place.shard("a", 0)], read_time=Instant(now + 60_000_000))


async def lose_the_answer(
    store: DatastoreStore, client: DatastoreClient, wire: Proxy, same: Commit, direct: DatastoreStore
) -> asyncio.Future[Instant]:
    """Begin to apply, and return when the store has it and the one who waits does not know."""
    send = client._stubs["Commit"]

    def send_and_lose(*arguments: Any, **named: Any) -> Any:
        wire.lose_answers()
        return send(*arguments, **named)

    for _ in range(10):
        client._stubs["Commit"] = send_and_lose
        waiting = asyncio.ensure_future(store.apply(same))
        for _ in range(50):
            if (await direct.receipts([same.receipts[0].key])).found:
                client._stubs["Commit"] = send
                assert not waiting.done()
                return waiting
            await asyncio.sleep(0.02)
        client._stubs["Commit"] = send
        wire.cut()  # it was refused for contention with our looks, and that was lost
        await asyncio.wait([waiting])
    pytest.fail("it was never applied")


async def test_a_commit_whose_answer_was_lost_counts_once(datastore: Datastore) -> None:
    direct = await datastore.store()
    await direct.apply(commit(("a", 1)))
    async with proxy(datastore.host) as wire:
        client = datastore.client(wire.address)
        store = await datastore.store(client)
        same = commit(("a", 10), ("b", 10), keys=("lost",))
        waiting = await lose_the_answer(store, client, wire, same, direct)
        wire.cut()
        with pytest.raises(TransientError) as lost:
            await waiting
        assert lost.value.__cause__ is not None
        async with asyncio.timeout(30):
            while True:  # with jitter the channel waits up to some seconds before it connects again
                try:
                    await store.apply(same)
                except AlreadyAppliedError:
                    break
                except TransientError:
                    await asyncio.sleep(0.05)
        assert (await store.receipts(["lost"])).found["lost"].state == "applied"
        await store.apply(commit(("a", 100)))
        assert (await total(direct, "a"), await total(direct, "b")) == (111, 10)


async def test_a_cancelled_commit_is_found_by_its_receipt(datastore: Datastore) -> None:
    """A client that cancels knows as little as one whose answer was lost."""
    direct = await datastore.store()
    async with proxy(datastore.host) as wire:
        client = datastore.client(wire.address)
        store = await datastore.store(client)
        same = commit(("a", 10), keys=("cancelled",))
        waiting = await lose_the_answer(store, client, wire, same, direct)
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(AlreadyAppliedError):
            await direct.apply(same)
        assert await total(direct, "a") == 10
