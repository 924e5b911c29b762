"""What the server tells: its time, snapshots, ages of shards, names in order, promises of flushers, and whether it
is fit.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import orjson

from shared.datastore.client import DatastoreClient, MissingError, micros, millis
from shared.datastore.keys import (
    COUNT,
    DatastorePlace,
    integer,
    name_of,
    transform,
    unindexed,
    within,
    write,
)
from shared.datastore.snapshot import LastShardNumbers, PastSnapshot
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError, ContendedError, CountersinkError, SettingsError
from shared.model.receipts import FORGOTTEN, HOUR, Promise
from shared.model.words import Receipt
from shared.ports.store import Snapshot
from shared.runtime.clock import Clock

HEARD: Final = 30.0
"""Seconds. If no response has told the server's time for longer, `now` asks for it."""
STALE: Final = 1.0
"""Seconds. If no response has told the server's time for longer, `snapshot` asks for it, so that it is not too old."""


class DatastoreServer:
    """Google's servers, and the Firestore emulator in Datastore mode."""

    def __init__(self, client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._clock = clock

    async def now(self) -> StoreMillis:
        """The server's time: the last that it told, plus what has passed since."""
        time = self._client.time
        if time.age(self._clock.monotonic()) > HEARD:
            await self.ask_time()
        return millis(time.bound(self._clock.monotonic()))

    async def ask_time(self) -> Instant:
        """The instant of a look that begins now."""
        return (await self._client.look_up([self._place.nothing()])).time

    async def snapshot(self, numbers: LastShardNumbers) -> Snapshot:
        time = self._client.time
        if time.age(self._clock.monotonic()) > STALE:
            await self.ask_time()
        return self.snapshot_at(time.bound(self._clock.monotonic()), numbers)

    def snapshot_at(self, time: Instant, numbers: LastShardNumbers) -> Snapshot:
        return PastSnapshot(self._client, self._place, numbers, time, self._client.time.doubt)

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since each shard was written, by the server's clock alone. Shards that do not exist are left out."""
        names = {name_of(self._place.shard(*shard)): shard for shard in shards}
        found = await self._client.look_up(self._place.shard(*shard) for shard in names.values())
        return {names[name_of(one.entity.key)]: (found.time - micros(one.update_time)) / 1e6 for one in found.entities}

    async def names(self, query: Any, prefix: str, after: str, until: str | None) -> Sequence[str]:
        """The first names that the query finds within these bounds, as many as its limit, in the order of their bytes.

        The query is one for keys, in their order, and is changed.
        """
        within(query, self._place, prefix, after, until)
        return [name_of(one.entity.key)[1] for one in await self._client.query(self._place.partition, query)]

    async def count(self, query: Any, prefix: str, most: int) -> int:
        """How many names that begin with the prefix the query finds; `most` if there are more. The query is changed."""
        return await self._client.count(self._place.partition, within(query, self._place, prefix), most)


# Keeps the promises of flushers in Datastore: one entity among the receipts, which never expires.


NAME: Final = "promises"
_ALL: Final = "promises"


async def promises_of(client: DatastoreClient, place: DatastorePlace) -> list[Promise]:
    return _read((await client.look_up([place.receipt(NAME)])).entities)


async def keep(client: DatastoreClient, place: DatastorePlace, one: Promise) -> None:
    """`ContendedError` if another flusher writes at the same time."""
    found = (await client.look_up([place.receipt(NAME)])).entities
    kept = {promise[:2]: promise for promise in _read(found) if promise.seen > one.seen - FORGOTTEN}
    there = kept.get(one[:2], one)
    kept[one[:2]] = one._replace(seen=max(one.seen, there.seen))
    request = client.commit_request()
    entity = write(request, place.entity(place.receipt(NAME)), found[0].version if found else 0)
    unindexed(entity, _ALL).blob_value = orjson.dumps([[*promise] for promise in kept.values()])
    try:
        await client.commit(request, updates=True, versions=True)
    except (AlreadyAppliedError, MissingError) as error:
        raise ContendedError(str(error)) from error


def _read(found: Any) -> list[Promise]:
    if not found:
        return []
    return [Promise(*row) for row in orjson.loads(found[0].entity.properties[_ALL].blob_value)]


# Refuses a server that can't add to a number by itself: the older emulator ignores transforms and erases entities.


_log = logging.getLogger(__name__)

OLDER: Final = (
    "the server of datastore://{} ignores property transforms, as the older Datastore emulator does, and would lose"
    " counts: start the other emulator, `gcloud emulators firestore start --database-mode=datastore-mode`, and set"
    " DATASTORE_EMULATOR_HOST to its address"
)
_SCRATCH_LIVES: Final = HOUR
"""Milliseconds until the scratch entity expires. It is deleted at once, or, if that fails, with old receipts."""


async def probe(client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
    """Add 2 to the 40 in a scratch entity that has other properties too, and look at the result. Raise `SettingsError`
    if the server did not add, or erased the other properties.
    """
    expires = StoreMillis(int(clock.now() * 1_000) + _SCRATCH_LIVES)
    scratch = place.receipt_entity(Receipt(f"probe-{uuid4().hex}", expires, "probe"))
    scratch.properties[COUNT].integer_value = 40
    await _commit(client, "insert", scratch)  # if the server is away it fails here, and there is nothing to delete
    try:
        if not await _adds(client, scratch):
            raise SettingsError(OLDER.format("/".join(filter(None, (place.project, place.database)))))
    finally:
        try:
            await _commit(client, "delete", scratch.key)
        except CountersinkError as error:
            _log.warning("the scratch entity of the probe could not be deleted; it expires within the hour: %s", error)


async def _adds(client: DatastoreClient, scratch: Any) -> bool:
    request = client.commit_request()
    transform(request.mutations.add(), scratch.key, COUNT, update=True).increment.integer_value = 2
    await client.commit(request)
    found = await client.look_up([scratch.key])
    entity = found.entities[0].entity
    return len(entity.properties) == len(scratch.properties) and integer(entity, COUNT) == 42  # noqa: PLR2004


async def _commit(client: DatastoreClient, what: str, value: Any) -> None:
    request = client.commit_request()
    getattr(request.mutations.add(), what).CopyFrom(value)
    await client.commit(request)
