"""An application of Google's published sharded counter on google-cloud-ndb, which knows nothing of us."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import ndb

from tests.emulators.datastore_fixtures import Datastore

SHARD_KEY_TEMPLATE = "shard-{}-{:d}"
Run = Callable[..., Any]


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


@contextmanager
def application_on(datastore: Datastore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs one of the functions above as the application does: in a thread, in a context without caches."""
    monkeypatch.setenv("DATASTORE_EMULATOR_HOST", datastore.host)
    place = datastore.place
    client = ndb.Client(place.project, namespace=place.namespace, credentials=AnonymousCredentials())

    def run(function: Run, *arguments: Any) -> Any:
        with client.context(cache_policy=lambda _: False):
            return function(*arguments)

    yield run
    client.stub.close()
