"""An application of Google's published sharded counter, on google-cloud-ndb, shares its counters with us."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import ndb

from shared.errors import AlreadyAppliedError, TransientError
from shared.google.datastore_store import DatastoreStore
from shared.words import Commit, ShardAdd
from tests.contracts.store import commit, total
from tests.emulators.datastore_fixtures import PROJECT, Datastore

SHARD_KEY_TEMPLATE = "shard-{}-{:d}"
TIMES = 15


class GeneralCounterShardConfig(ndb.Model):  # type: ignore[misc] # not typed
    num_shards = ndb.IntegerProperty(default=20)

    @classmethod
    def all_keys(cls, name: str) -> list[Any]:
        config = cls.get_or_insert(name)
        shards = [SHARD_KEY_TEMPLATE.format(name, index) for index in range(config.num_shards)]
        return [ndb.Key(GeneralCounterShard, shard) for shard in shards]


class GeneralCounterShard(ndb.Model):  # type: ignore[misc] # not typed
    count = ndb.IntegerProperty(default=0)


def get_count(name: str) -> int:
    """Without the published 60 seconds of memcache: a total of now."""
    shards = ndb.get_multi(GeneralCounterShardConfig.all_keys(name))
    return sum(shard.count for shard in shards if shard is not None)


def increment(name: str) -> None:
    config = GeneralCounterShardConfig.get_or_insert(name)
    index = random.randint(0, config.num_shards - 1)
    key = SHARD_KEY_TEMPLATE.format(name, index)

    def add() -> None:
        counter = GeneralCounterShard.get_by_id(key) or GeneralCounterShard(id=key)
        counter.count += 1
        counter.put()

    ndb.transaction(add, retries=20)


def increase_shards(name: str, num_shards: int) -> None:
    def raise_() -> None:
        config = GeneralCounterShardConfig.get_by_id(name) or GeneralCounterShardConfig(id=name)
        if config.num_shards < num_shards:
            config.num_shards = num_shards
            config.put()

    ndb.transaction(raise_, retries=20)


@pytest.fixture(params=["firestore", "older"])
def datastore(request: pytest.FixtureRequest) -> Datastore:
    """Each of the emulators."""
    one: Datastore = request.getfixturevalue(request.param)
    return one


@pytest.fixture
def application(datastore: Datastore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs one of the functions above as the application does: in a thread, in a context without caches."""
    monkeypatch.setenv("DATASTORE_EMULATOR_HOST", datastore.host)
    client = ndb.Client(PROJECT, namespace=datastore.place.namespace, credentials=AnonymousCredentials())

    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        with client.context(cache_policy=lambda _: False):
            return function(*arguments)

    yield run
    client.stub.close()


async def insist(store: DatastoreStore, one: Commit) -> None:
    """As a flusher does."""
    while True:
        try:
            await store.apply(one)
        except AlreadyAppliedError:
            return
        except TransientError:
            await asyncio.sleep(0.01)
        else:
            return


async def test_both_count_at_the_same_time_and_read_the_same(
    datastore: Datastore, application: Callable[..., Any]
) -> None:
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


async def test_more_shards_from_either_side_are_read_by_the_other(
    datastore: Datastore, application: Callable[..., Any]
) -> None:
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
