"""An application of Google's published sharded counter, on google-cloud-ndb, and a fleet of ours count on the same
entities at the same time. The application knows nothing of us.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import ndb

from tests.emulators.datastore_fixtures import Datastore
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes

THEIRS = 8
"""Increments of each of two threads of the application, per counter."""
OURS = 10
"""What each of our increments adds."""
COUNTERS = ("one", "other")
MADE_BY_US = "ours"
MOST_SHARDS = 40
SETTINGS = {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}


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


@dataclass
class Sides:
    """Who increments, and what was answered to ours."""

    application: Run
    session: aiohttp.ClientSession
    url: str
    answered: Counter[str] = field(default_factory=Counter)
    done: bool = False

    async def at_once(self) -> None:
        """The application's first look makes the configs: of 20 shards, as it has them."""
        for name in COUNTERS:
            assert await asyncio.to_thread(self.application, get_count, name) == 0
        await asyncio.gather(self._until_done(), *(self._ours(name) for name in (*COUNTERS, MADE_BY_US)))

    async def _until_done(self) -> None:
        await asyncio.gather(self._theirs(), self._theirs(), self._growth())
        self.done = True

    async def _theirs(self) -> None:
        for _ in range(THEIRS):
            for name in COUNTERS:
                await asyncio.to_thread(self.application, increment, name)

    async def _ours(self, name: str) -> None:
        while not self.done:
            async with self.session.post(f"{self.url}/v1/counters/{name}", json={"delta": OURS}) as response:
                assert response.status == 202, await response.text()
            self.answered[name] += OURS
            await asyncio.sleep(0.02)

    async def _growth(self) -> None:
        """Each side asks for more than the other has, in turn; and once for less."""
        for number in range(22, MOST_SHARDS - 1, 4):
            await asyncio.to_thread(self.application, increase_shards, "one", number)
            assert await put_shards(self.session, self.url, "one", number + 2) == number + 2
        assert await put_shards(self.session, self.url, "one", 3) == MOST_SHARDS


@pytest.mark.timeout(120)
async def test_an_application_of_the_published_counter_and_a_fleet_read_one_total(
    on_emulators: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = on_emulators
    with application_on(pair.datastore, monkeypatch) as application:
        async with (
            processes(tmp_path, tmp_path / "log", **pair.settings, **SETTINGS) as started,
            aiohttp.ClientSession() as session,
        ):
            ingest, *flushers = await asyncio.gather(
                *(started.start(*arguments) for arguments in (("ingest", "--port", "0"), ("flusher",), ("flusher",)))
            )
            sides = Sides(application, session, ingest.url)
            await sides.at_once()
            for name, shards in zip(COUNTERS, (MOST_SHARDS, 20), strict=True):
                total = sides.answered[name] + 2 * THEIRS
                assert await at_rest(session, ingest.url, name, total) == shards
                assert await asyncio.to_thread(application, get_count, name) == total
            await at_rest(session, ingest.url, MADE_BY_US, sides.answered[MADE_BY_US])
            assert await asyncio.to_thread(application, get_count, MADE_BY_US) == sides.answered[MADE_BY_US]
            for running in (ingest, *flushers):
                assert await running.end(signal.SIGTERM) == 0
        assert await pair.left() == 0
    assert sides.answered.total() > 10 * OURS


async def put_shards(session: aiohttp.ClientSession, url: str, name: str, shards: int) -> int:
    """How many there are then."""
    async with session.put(f"{url}/v1/counters/{name}/shards", json={"shards": shards}) as response:
        answer: dict[str, Any] = await response.json()
    assert response.status == 200, answer
    return int(answer["shards"])


async def at_rest(session: aiohttp.ClientSession, url: str, name: str, total: int) -> int:
    """Wait until all is applied; the number of shards."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(f"{url}/v1/counters/{name}?max_age=0") as response:
                reading: dict[str, Any] = await response.json()
            if response.status == 200:
                assert reading["value"] <= total, reading
                if reading["value"] == total and not reading["pending"]:
                    return int(reading["shards"])
            await asyncio.sleep(0.05)
