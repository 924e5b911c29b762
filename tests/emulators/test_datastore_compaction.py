"""Counters in Datastore that are compacted while several processes write to them: nothing is lost, and audits agree."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, UNKNOWN, judge, look
from flusher.flush.commit_loop import ShardBook
from shared.counters.compaction import Compactor
from shared.datastore.client import DatastoreClient, Found
from shared.datastore.keys import name_of
from shared.datastore.store import DatastoreStore
from shared.model.errors import AlreadyAppliedError, ContendedError, ShrunkError, TransientError
from shared.model.receipts import DAY, Tally, notes_of_commit
from shared.model.words import Commit, Receipt, ShardAdd
from tests.contracts.compactions import receipt, shrink, spread
from tests.contracts.removals import delete
from tests.contracts.store import LATER, commit, total
from tests.emulators.datastore_fixtures import Datastore

SHARDS = 6


async def count(store: DatastoreStore, book: ShardBook, key: str, delta: int) -> None:
    """As a flusher does, until its receipt is there."""
    (note,) = notes_of_commit([""], key, Tally(applied=1), {"a": delta})
    while True:
        adds = await book.adds({"a": delta})
        try:
            await store.apply(Commit((Receipt(key, LATER, note=note),), adds))
        except ShrunkError as error:
            book.shrunk(error.counters)
        except AlreadyAppliedError:
            return
        except TransientError:
            continue
        else:
            book.done(adds)
            return


async def test_increments_and_compactions_at_once_are_all_accounted_for(datastore: Datastore) -> None:
    stores = [await datastore.store() for _ in range(5)]
    chance = random.Random(1)
    done = asyncio.Event()
    compacted = 0

    async def adds(store: DatastoreStore, name: str) -> None:
        """Slower and slower until a compaction gets in between, as long as that takes on a busy machine."""
        book = ShardBook(store, datastore.clock, 1, chance.randrange)
        for number in itertools.count():
            if number >= 30 and compacted:
                return
            await count(store, book, f"{name}-{number}", chance.choice([1, -2, 1_000, 2**41]))
            await asyncio.sleep(0.01 * chance.random() * max(1, number - 30))

    async def compacts(store: DatastoreStore) -> None:
        nonlocal compacted
        while not done.is_set():
            with contextlib.suppress(ContendedError):
                compacted += await shrink(store, chance.randint(1, 2)) > 0
            await asyncio.sleep(0.05 * chance.random())

    async def raises(store: DatastoreStore) -> None:
        while not done.is_set():
            await store.raise_shards("a", SHARDS)
            await asyncio.sleep(0.1 * chance.random())

    chance.seed(1)
    others = [asyncio.create_task(one) for one in (compacts(stores[3]), compacts(stores[4]), raises(stores[4]))]
    await asyncio.gather(*(adds(store, f"w{number}") for number, store in enumerate(stores[:3])))
    done.set()
    await asyncio.gather(*others)
    assert compacted
    assert await Compactor(stores[0], datastore.clock, DAY).compact("a", 1) == 1
    with contextlib.closing(await look(stores[0], ["a"], 0)) as ledger:
        (line,) = ledger.lines()
        assert (line.held, line.unread) == (line.said, 0)
        assert line.held == await total(stores[0], "a")
        assert judge(line, 0).mark in {AGREES, UNKNOWN}
        assert ledger.receipts > 90


async def stopped_before(
    client: DatastoreClient, shard: str, step: Callable[[], Awaitable[Any]], between: Callable[[], Awaitable[Any]]
) -> Any:
    """What becomes of a step that is kept from looking at this shard until something else has happened."""
    arrived, go = asyncio.Event(), asyncio.Event()
    look_up = client.look_up

    async def waiting(keys: Iterable[Any], **options: Any) -> Found:
        ids = [*keys]
        if any(name_of(key)[1] == shard for key in ids) and not arrived.is_set():
            arrived.set()
            await go.wait()
        return await look_up(ids, **options)

    client.look_up = waiting  # type: ignore[method-assign] # that is the point
    task = asyncio.ensure_future(step())
    await arrived.wait()
    await between()
    go.set()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def test_who_comes_second_leaves_no_shard_that_somebody_remembers(datastore: Datastore) -> None:
    """It would be added to, and read by nobody."""
    client = datastore.client()
    writer, first, second = await datastore.store(), await datastore.store(), await datastore.store(client)
    await spread(writer, 1, 2, 3, 4)
    outcome = await stopped_before(client, "shard-a-3", lambda: shrink(second, 1), lambda: shrink(first, 1))
    assert isinstance(outcome, ContendedError)
    with pytest.raises(ShrunkError):
        await writer.apply(commit(ShardAdd("a", 3, 5, 4, 4)))
    assert await total(writer, "a") == 10


async def test_nor_does_who_removes_a_counter_second(datastore: Datastore) -> None:
    client = datastore.client()
    writer, first, second = await datastore.store(), await datastore.store(), await datastore.store(client)
    await spread(writer, 1, 2, 3, 4)
    await delete(writer)
    outcome = await stopped_before(client, "shard-a-3", lambda: second.remove("a"), lambda: first.remove("a"))
    assert outcome is False
    await writer.apply(commit(ShardAdd("a", 3, 5, 4, 4)))
    assert await total(writer, "a") == 5


async def test_more_shards_than_one_commit_takes_go_in_several(datastore: Datastore) -> None:
    store = await datastore.store()
    await store.apply(commit(ShardAdd("a", 0, 1, 450), ShardAdd("a", 449, 5, 450)))
    assert await store.compact("a", 1, receipt()) == 250
    assert await total(store, "a") == 6
    assert await Compactor(store, datastore.clock, DAY).compact("a", 1) == 1
    assert await total(store, "a") == 6


async def test_the_last_write_of_a_shard_has_an_age_whoever_wrote(datastore: Datastore) -> None:
    store, other = await datastore.store(), await datastore.store()
    await spread(store, 1, 2)
    while (await store.ages([("a", 0)]))["a", 0] < 0.3:
        await asyncio.sleep(0.02)
    await other.apply(commit(ShardAdd("a", 1, 1, 2)))
    ages = await store.ages([("a", 0), ("a", 1), ("a", 2)])
    assert ages.keys() == {("a", 0), ("a", 1)}
    assert -0.1 < ages["a", 1] <= ages["a", 0] - 0.3 < 30
