"""A store is put back to an earlier instant, and the topic delivers again what was counted since: all counts once."""

import asyncio
import itertools
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from google.pubsub_v1 import types

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import DatastorePlace, query_of
from shared.datastore.store import DatastoreStore
from tests.contracts.store import total
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.calls import Item, Request
from tests.processes.fleet.pairs import Emulated, message
from tests.processes.fleet.truth import Truths, split
from tests.processes.harness import Processes, Running, processes

EACH = 24
"""Increments of each stage."""
WITHIN = 60.0
AT_ONCE = 200
SET = "set-after-the-copy"


class Traffic:
    """Increments with an id, under a key, without an id, and of another publisher; all of them are accepted."""

    def __init__(self, pair: Emulated, session: aiohttp.ClientSession) -> None:
        self._pair = pair
        self._session = session
        self._numbers = itertools.count()
        self.truths = Truths()
        self.named: list[Request] = []
        """What a client may send again."""

    async def count(self, url: str) -> None:
        for _ in range(EACH // 4):
            number = next(self._numbers)
            items = [self.truths.next(number) for _ in range(4)]
            of_id, of_key, without, foreign = items
            for request in (
                Request(f"/v1/counters/{of_id[0]}", {"id": f"i{number}", "delta": of_id[2]}, {}, [of_id]),
                Request(
                    "/v1/increments",
                    [{"counter": of_key[0], "delta": of_key[2]}],
                    {"Idempotency-Key": f"k{number}"},
                    [of_key],
                ),
            ):
                self.named.append(request)
                await self.post(url, request)
            await self.post(url, Request(f"/v1/counters/{without[0]}", {"delta": without[2]}, {}, [without]))
            await self._pair.publish([message(foreign[0], foreign[2], f"f{number}")])
            self._answered(foreign)

    async def post(self, url: str, request: Request) -> None:
        async with self._session.post(url + request.path, json=request.body, headers=request.headers) as response:
            assert response.status == 202, await response.text()
        self._answered(*request.items)

    def _answered(self, *items: Item) -> None:
        for counter, bit, _ in items:
            self.truths.answer(counter, bit)

    async def set(self, url: str, counter: str) -> None:
        async with self._session.put(f"{url}/v1/counters/{counter}", json={"value": 7}) as response:
            assert response.status == 200, await response.text()

    async def read(self, url: str) -> list[dict[str, Any]]:
        names = "&".join(f"name={name}" for name in self.truths.counters)
        async with self._session.get(f"{url}/v1/counters?{names}") as response:
            answer: dict[str, list[dict[str, Any]]] = await response.json()
        return answer["counters"]


async def missing_in(store: DatastoreStore, answered: Mapping[str, int]) -> int:
    """How many of these increments the shards do not hold. None may be there twice."""
    missing = 0
    for name, mask in answered.items():
        found, more = split(await total(store, name))
        assert not more, f"{name} has increments twice"
        missing += (mask & ~found).bit_count()
    return missing


async def until_applied(store: DatastoreStore, answered: Mapping[str, int]) -> None:
    async with asyncio.timeout(WITHIN):
        while await missing_in(store, answered):
            await asyncio.sleep(0.1)


async def copied(datastore: Datastore) -> list[Any]:
    """All entities of the namespace, at one instant."""
    await datastore.store()
    client, place = datastore.client(), datastore.place
    instant = client.time.bound(datastore.clock.monotonic())
    kinds = [getattr(place.kinds, field.name) for field in fields(place.kinds)]
    return [
        result.entity
        for kind in kinds
        async for page in client.pages(query_of(kind, AT_ONCE), read_time=instant)
        for result in page
    ]


async def put_back(datastore: Datastore, entities: list[Any], namespace: str) -> DatastoreStore:
    """A backup of Google's becomes a new database; here, a new namespace."""
    client = datastore.client()
    for begin in range(0, len(entities), AT_ONCE):
        request = client.commit_request()
        for entity in entities[begin : begin + AT_ONCE]:
            written = request.mutations.add().upsert
            written.CopyFrom(entity)
            written.key.partition_id.namespace_id = namespace
        await client.commit(request)
    place = DatastorePlace(datastore.place.project, namespace=namespace)
    restored = DatastoreClient(place, datastore.clock, datastore.host)
    datastore.clients.append(restored)
    store = DatastoreStore(restored)
    await store.check()
    return store


async def seek(pair: Emulated, instant: int) -> None:
    """As `gcloud pubsub subscriptions seek --time` does."""
    request = types.SeekRequest.pb()(subscription=pair.pubsub.place.subscription)
    request.time.FromSeconds(instant)
    await pair.pubsub.change("Subscriber/Seek", request)


async def end(*all_of_them: Running) -> None:
    for running in all_of_them:
        assert await running.end(signal.SIGTERM) == 0


async def count_and_copy(pair: Emulated, started: Processes, traffic: Traffic) -> list[Any]:
    """A copy taken while messages wait. All is applied in the end, and the processes have ended."""
    answered = traffic.truths.answered
    ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
    store = await pair.datastore.store()
    await traffic.count(ingest.url)
    await until_applied(store, answered())
    await end(flusher)
    await traffic.count(ingest.url)
    flusher = await started.start("flusher")  # it may go on meanwhile, since the copy is of one instant
    copy = await copied(pair.datastore)
    await traffic.count(ingest.url)
    await until_applied(store, answered())
    await traffic.set(ingest.url, SET)
    async with asyncio.timeout(WITHIN):
        while await total(store, SET) != 7:  # this process may not know yet what the other one has committed
            await asyncio.sleep(0.1)
    await end(ingest, flusher)
    return copy


@pytest.fixture
async def started(on_emulators: Emulated, redis: RedisServer, tmp_path: Path) -> AsyncIterator[Processes]:
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url, "COUNTERSINK_FLUSH_INTERVAL": "0.1"}
    async with processes(tmp_path, tmp_path / "log", **settings) as all_of_them:
        yield all_of_them


@pytest.fixture
async def traffic(on_emulators: Emulated) -> AsyncIterator[Traffic]:
    async with aiohttp.ClientSession() as session:
        yield Traffic(on_emulators, session)


@pytest.mark.timeout(300)
async def test_all_counts_once_after_a_restore_and_a_seek(
    on_emulators: Emulated, started: Processes, traffic: Traffic
) -> None:
    """The steps of docs/google-cloud-outages.md."""
    pair, begun = on_emulators, int(time.time()) - 1
    answered = traffic.truths.answered
    copy = await count_and_copy(pair, started, traffic)
    namespace = f"test-{uuid4().hex}"
    store = await put_back(pair.datastore, copy, namespace)
    assert await missing_in(store, answered()) >= EACH, "the copy has what was counted after it"
    await seek(pair, begun)
    back = {"COUNTERSINK_STORE": f"datastore://{pair.datastore.place.project}?namespace={namespace}"}
    flusher = await started.start("flusher", **back)
    await until_applied(store, answered())
    ingest = await started.start("ingest", "--port", "0", **back)
    for request in traffic.named:
        await traffic.post(ingest.url, request)
    await traffic.count(ingest.url)
    await until_applied(store, answered())
    async with asyncio.timeout(WITHIN):
        while any(one["pending"] or not one["exact"] for one in await traffic.read(ingest.url)):
            await asyncio.sleep(0.1)
    assert await missing_in(store, answered()) == 0
    for reading in await traffic.read(ingest.url):
        assert reading["value"] == await total(store, reading["name"])
    assert await total(store, SET) == 0, "a set has no message, so nothing brings it back"
    audit = await started.command("audit", **back)
    assert audit.code == 0, audit
    assert f"{len(answered())} agree, 0 differ, 0 can't be judged" in audit.out, audit
    await end(ingest, flusher)
    assert await pair.left() == 0


@pytest.mark.timeout(300)
async def test_a_restore_over_what_is_there_loses_increments_and_the_audit_shows_it(
    on_emulators: Emulated, started: Processes, traffic: Traffic
) -> None:
    """Receipts that are younger than the copy stay, as after an import, so what comes again is not counted."""
    pair, begun = on_emulators, int(time.time()) - 1
    answered = traffic.truths.answered
    copy = await count_and_copy(pair, started, traffic)
    store = await put_back(pair.datastore, copy, pair.datastore.place.namespace)
    await seek(pair, begun)
    flusher = await started.start("flusher")
    async with asyncio.timeout(WITHIN):
        while await pair.left():
            await asyncio.sleep(0.5)
    await end(flusher)
    assert await missing_in(store, answered()) >= EACH
    audit = await started.command("audit")
    assert f"{len(answered())} can't be judged" in audit.out, audit
    assert "shards hold" in audit.out, audit
