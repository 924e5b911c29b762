"""The entities that a release leaves in Datastore: all kinds, with totals, counts by time, ids, and the fleet."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.cloud.datastore_v1.types import query as types
from google.protobuf import json_format

from countersink import AsyncClient
from tests.emulators.datastore_fixtures import FIRESTORE, Datastore, shared_emulator
from tests.emulators.pubsub_fixtures import PUBSUB
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated, emulated
from tests.processes.harness import processes
from tests.releases import SETTINGS

MOST: Final = 300
"""Entities that are read or written at once."""


async def make_entities(folder: Path) -> dict[str, Any]:
    """The entities, and what they hold."""
    with ExitStack() as servers:
        pubsub_host = servers.enter_context(shared_emulator(folder, "pubsub", PUBSUB))
        firestore_host = servers.enter_context(shared_emulator(folder, "firestore", FIRESTORE))
        redis = RedisServer(folder)
        redis.start()
        servers.callback(redis.kill)
        pair = await emulated(pubsub_host, Datastore(firestore_host))
        async with processes(folder, folder / "log of entities", **settings_of(pair, redis)) as started:
            command = (sys.executable, "-m", "countersink", "provision")  # makes the record of the fleet
            assert await (await asyncio.create_subprocess_exec(*command, env=started.environment)).wait() == 0
            ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
            async with AsyncClient(ingest.url) as client:
                await client.increment_many({"page:home": 12, "page:about": 3}, key="batch-1", wait=60)
                await client.increment("orders", 5, id="order-1", wait=60)
                await client.increment("gone", wait=60)
                await client.delete("gone")
            today = datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")
            for running in (ingest, flusher):
                assert await running.end(signal.SIGTERM) == 0
        entities = await entities_in(pair.datastore)
        await pair.close()
    return {
        "entities": entities,
        "totals": {"page:home": 12, "page:about": 3, "orders": 5},
        "missing": ["gone"],
        "day": today,
        "of_the_day": {"page:home": 12, "page:about": 3},
        "batch": {"key": "batch-1", "counters": {"page:home": 12, "page:about": 3}},
        "ids": [["orders", 5, "order-1"]],
    }


def settings_of(pair: Emulated, redis: RedisServer) -> dict[str, str]:
    return SETTINGS | pair.settings | {"COUNTERSINK_OVERLAY": redis.url}


async def entities_in(datastore: Datastore) -> Sequence[dict[str, Any]]:
    client, place = datastore.client(), datastore.place
    found = []
    for kind in astuple(place.kinds):
        query = types.Query.pb()()
        query.kind.add().name = kind
        query.limit.value = MOST
        found += [json_format.MessageToDict(one.entity) for one in await client.query(query)]
    return found


async def put_entities(pair: Emulated, entities: Sequence[dict[str, Any]]) -> None:
    """Write them into the place of a test."""
    client, place = pair.datastore.client(), pair.datastore.place
    request = client.commit_request()
    for one in entities:
        entity = request.mutations.add().upsert
        json_format.ParseDict(one, entity)
        entity.key.partition_id.CopyFrom(place.partition)
    await client.commit(request)


def written(made: dict[str, Any]) -> str:
    """JSON with a line for each entity."""
    entities = ",\n".join(json.dumps(one, sort_keys=True) for one in made.pop("entities"))
    return f'{json.dumps(made)[:-1]},\n"entities": [\n{entities}\n]}}\n'
