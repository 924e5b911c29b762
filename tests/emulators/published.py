"""Applications that count as the published codes do, on their data; each written anew, by what it reads and writes."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import datastore

from tests.emulators.datastore_fixtures import Datastore

CONFIG: Final = "GeneralCounterShardConfig"
SHARD: Final = "GeneralCounterShard"
TRIES: Final = 20


class Application(Protocol):
    """One counter after the other: each call in a thread."""

    def increment(self, name: str) -> None: ...

    def get_count(self, name: str) -> int: ...


class Database:
    """A namespace, as Google's own client shows it."""

    def __init__(self, host: str, project: str, namespace: str = "old") -> None:
        self.client = datastore.Client(
            project,
            namespace,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://{host}"},
        )

    def transact(self, work: Callable[[], None]) -> None:
        for _ in range(TRIES - 1):
            try:
                with self.client.transaction():
                    work()
            except (exceptions.Aborted, exceptions.Conflict, exceptions.AlreadyExists):
                time.sleep(random.uniform(0, 0.05))
            else:
                return
        with self.client.transaction():
            work()

    def put(self, key: Any, **properties: Any) -> None:
        entity = datastore.Entity(key)
        entity.update(properties)
        self.client.put(entity)

    def add(self, key: Any, count: str = "count", **properties: Any) -> None:
        """One more, in the shard that is there or in a new one."""

        def work() -> None:
            entity = None if key.is_partial else self.client.get(key)
            if entity is None:
                entity = datastore.Entity(key)
                entity.update({count: 0} | properties)
            entity[count] += 1
            self.client.put(entity)

        self.transact(work)

    def config(self, kind: str, counter: str, property_: str, default: int, /, **more: Any) -> int:
        """Get or insert."""
        key = self.client.key(kind, counter)
        entity = self.client.get(key)
        if entity is None:
            self.put(key, **{property_: default}, **more)
            return default
        return int(entity[property_])

    def sum(self, kind: str, count: str = "count", ancestor: Any = None, **equal: Any) -> int:
        query = self.client.query(kind=kind, ancestor=ancestor)
        for name, value in equal.items():
            query.add_filter(filter=datastore.query.PropertyFilter(name, "=", value))
        return sum(entity[count] for entity in query.fetch())

    def key(self, *path: Any) -> Any:
        return self.client.key(*path)

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def old(datastore: Datastore) -> Iterator[Database]:
    """What the old application has for itself."""
    database = Database(datastore.host, datastore.place.project)
    yield database
    database.close()


class Ndb:
    def __init__(self, database: Database, shards: int = 20) -> None:
        self.database = database
        self.shards = shards

    def _number(self, name: str) -> int:
        return self.database.config(CONFIG, name, "num_shards", self.shards)

    def increment(self, name: str) -> None:
        self.database.add(self.database.key(SHARD, f"shard-{name}-{random.randrange(self._number(name))}"))

    def get_count(self, name: str) -> int:
        keys = [self.database.key(SHARD, f"shard-{name}-{index}") for index in range(self._number(name))]
        return sum(shard["count"] for shard in self.database.client.get_multi(keys))


class Ndb2013(Ndb):
    """An id of 0 is none, so that what it meant for shard 0 goes to a new one each time. It is chosen here: an
    emulator's own may be that of another shard.
    """

    def increment(self, name: str) -> None:
        index = random.randrange(self._number(name))
        self.database.add(self.database.key(SHARD, name, SHARD, index or random.randrange(2**40, 2**50)))

    def get_count(self, name: str) -> int:
        return self.database.sum(SHARD, ancestor=self.database.key(SHARD, name))


class Db(Ndb):
    """The shard 1 of "a1" is the shard 11 of "a": whoever makes it owns it."""

    def _number(self, name: str) -> int:
        return self.database.config(CONFIG, name, "num_shards", self.shards, name=name)

    def increment(self, name: str) -> None:
        self.database.add(self.database.key(SHARD, f"{name}{random.randrange(self._number(name))}"), name=name)

    def get_count(self, name: str) -> int:
        return self.database.sum(SHARD, name=name)


class Go(Ndb):
    def increment(self, name: str) -> None:
        number = self.database.config(CONFIG, name, "Shards", self.shards)
        self.database.add(self.database.key(SHARD, f"{name}-shard{random.randrange(number)}"), "Count", Name=name)

    def get_count(self, name: str) -> int:
        return self.database.sum(SHARD, "Count", Name=name)


class Java(Ndb):
    """The entity of the counter is made when shards are added, and not before."""

    def increment(self, name: str) -> None:
        there = self.database.client.get(self.database.key("Counter", name))
        number = 5 if there is None else int(there["shard_count"])
        self.database.add(self.database.key(f"CounterShard_{name}", str(random.randrange(number))))

    def get_count(self, name: str) -> int:
        return self.database.sum(f"CounterShard_{name}")


class Php(Ndb):
    def increment(self, name: str) -> None:
        self.database.add(self.database.key("Votes", f"{name}_{random.randint(1, self.shards)}"), target=name)

    def get_count(self, name: str) -> int:
        return self.database.sum("Votes", target=name)


class Acc(Ndb):
    """Another shard where the one that was picked was written less than 0.1 seconds ago."""

    def increment(self, name: str) -> None:
        query = self.database.client.query(kind="AccVals")
        query.add_filter(filter=datastore.query.PropertyFilter("cluster", "=", name))
        shards = [*query.fetch()]
        now = time.time()
        old = [shard for shard in random.sample(shards, min(len(shards), 1)) if now - shard["updated"] >= 0.1]
        key = old[0].key if old else self.database.key("AccVals")
        self.database.add(key, cluster=name, updated=now, rand=random.random())

    def get_count(self, name: str) -> int:
        return self.database.sum("AccVals", cluster=name)


class Simple(Ndb):
    def increment(self, _: str) -> None:
        self.database.add(self.database.key("SimpleCounterShard", str(random.randrange(self.shards))))

    def get_count(self, _: str) -> int:
        return self.database.sum("SimpleCounterShard")


APPLICATIONS: Final = {
    "ndb": Ndb,
    "ndb-2013": Ndb2013,
    "db": Db,
    "go": Go,
    "java": Java,
    "php": Php,
    "acc": Acc,
    "simple": Simple,
}
