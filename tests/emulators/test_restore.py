"""A database that was put back to an earlier time, as docs/google-cloud.md says: all that was accepted counts once."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path

import aiohttp
import pytest
from google.pubsub_v1 import types

from countersink import AsyncClient
from shared.google.datastore.keys import DatastorePlace
from shared.google.datastore.queries import query_of
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import Pubsub
from tests.emulators.redis_fixtures import Start
from tests.emulators.test_clocks import metric, settings_of, until
from tests.processes.harness import Processes, processes

AT_ONCE = 400


@pytest.fixture
async def started(firestore: Datastore, pubsub: Pubsub, start_redis: Start, tmp_path: Path) -> AsyncIterator[Processes]:
    settings = settings_of(firestore, pubsub) | {"COUNTERSINK_OVERLAY": start_redis().url}
    async with processes(tmp_path, tmp_path / "log", **settings) as all_of_them:
        yield all_of_them


async def backup(firestore: Datastore) -> list[object]:
    """All entities of our kinds."""
    place, client = firestore.place, firestore.client()
    found: list[object] = []
    for kind in fields(place.kinds):
        query = query_of(getattr(place.kinds, kind.name), AT_ONCE)
        async for page in client.pages(place.partition, query, read_time=None):
            found += [result.entity for result in page]
    return found


async def restore(firestore: Datastore, entities: list[object]) -> DatastorePlace:
    """Into a namespace that was empty. Google restores a backup into a new database."""
    place, client = replace(firestore.place, namespace=f"{firestore.place.namespace}-restored"), firestore.client()
    for begin in range(0, len(entities), AT_ONCE):
        request = client.commit_request()
        for entity in entities[begin : begin + AT_ONCE]:
            upsert = request.mutations.add().upsert
            upsert.CopyFrom(entity)
            upsert.key.partition_id.CopyFrom(place.partition)
        await client.commit(request)
    return place


async def count(ingest: str, numbers: range) -> None:
    """Some without an id, some with one."""
    async with AsyncClient(ingest) as client, aiohttp.ClientSession() as session:
        for number in numbers:
            await client.increment("a", 1, id=f"id-{number}")
            async with session.post(f"{ingest}/v1/counters/b") as response:
                assert response.status == 202


async def test_what_was_counted_after_the_backup_counts_again_and_nothing_twice(
    started: Processes, firestore: Datastore, pubsub: Pubsub, start_redis: Start
) -> None:
    ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher", "--port", "0")
    async with AsyncClient(ingest.url) as client:
        await count(ingest.url, range(5))
        await client.set("kept", 7)

        async def applied(expected: int) -> bool:
            return [(await client.get(name, max_age=0)).applied for name in "ab"] == [expected] * 2

        await until(lambda: applied(5))
        entities = await backup(firestore)
        await count(ingest.url, range(5, 12))
        await client.set("lost", 100)
        await until(lambda: applied(12))
        await count(ingest.url, range(12, 15))  # perhaps not applied when all ends
    for process in (ingest, flusher):
        assert await process.end(signal.SIGTERM) == 0

    place = await restore(firestore, entities)
    new = {
        "COUNTERSINK_STORE": f"datastore://{place.project}?namespace={place.namespace}",
        "COUNTERSINK_OVERLAY": start_redis().url,
    }
    seek = types.SeekRequest.pb()(subscription=pubsub.place.subscription)
    seek.time.FromSeconds(1)
    await pubsub.change("Subscriber/Seek", seek)
    flusher = await started.start("flusher", "--port", "0", **new)
    store = await Datastore(firestore.host, place).store()

    async def all_are_applied() -> bool:
        async with store.snapshot() as snapshot:
            totals, _ = await snapshot.read(["a", "b"], [])
        return [totals["a"].value, totals["b"].value] == [15, 15]

    await until(all_are_applied)
    ingest = await started.start("ingest", "--port", "0", **new)
    async with AsyncClient(ingest.url) as client:
        for number in (3, 8, 13):  # accepted before the backup, after it, and at the end
            await client.increment("a", 1, id=f"id-{number}")
        await client.increment("a", 1, id="id-new")

        async def all_are_read() -> bool:
            found = [await client.get(name, max_age=0) for name in ("a", "b", "kept", "lost")]
            return [one.applied for one in found] == [16, 15, 7, 0]

        await until(all_are_read)
    assert await metric(flusher, "countersink_dead_lettered_messages_total") == 0
    for process in (ingest, flusher):
        assert await process.end(signal.SIGTERM) == 0
    audit = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "countersink", "audit", env=started.environment | new, stdout=PIPE, stderr=PIPE
    )
    said = b"".join(await audit.communicate()).decode()
    assert audit.returncode == 0, said
