"""An application of Google's published sharded counter, on google-cloud-ndb, shares its counters with us."""

import asyncio
from collections.abc import Iterator

import pytest

from shared.model.words import ShardAdd
from tests.contracts.store import commit, total
from tests.emulators.application import Run, application_on, get_count, increase_shards, increment
from tests.emulators.datastore_fixtures import Datastore, insist

TIMES = 15


@pytest.fixture
def application(datastore: Datastore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with application_on(datastore, monkeypatch) as run:
        yield run


async def test_both_count_at_the_same_time_and_read_the_same(datastore: Datastore, application: Run) -> None:
    store = await datastore.store()
    await store.raise_shards("old", 20)

    async def theirs() -> None:
        for _ in range(TIMES):
            await asyncio.to_thread(application, increment, "old")
            await asyncio.to_thread(application, increment, "new")

    async def ours() -> None:
        for number in range(4 * TIMES):
            shard = number % 20
            await insist(
                store, commit(ShardAdd("old", shard, 10, 20), ShardAdd("new", shard, 10, 20), keys=(f"{number}",))
            )

    async with asyncio.timeout(100):
        await asyncio.gather(theirs(), theirs(), ours())
    expected = 2 * TIMES + 4 * TIMES * 10
    for name in ("old", "new"):
        assert await total(await datastore.store(), name) == expected
        assert await asyncio.to_thread(application, get_count, name) == expected


async def test_more_shards_from_either_side_are_read_by_the_other(datastore: Datastore, application: Run) -> None:
    store = await datastore.store()
    await store.raise_shards("ours", 30)
    await store.apply(commit(ShardAdd("ours", 29, 5, 30)))
    assert await asyncio.to_thread(application, get_count, "ours") == 5
    await asyncio.to_thread(application, increase_shards, "ours", 25)
    assert await store.shards(["ours"]) == {"ours": 30}
    await asyncio.to_thread(application, increase_shards, "theirs", 40)
    assert await store.shards(["theirs"]) == {"theirs": 40}
    await asyncio.to_thread(application, increment, "theirs")
    assert await total(await datastore.store(), "theirs") == 1
    assert await store.raise_shards("theirs", 35) == 40
