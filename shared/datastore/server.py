"""Whether the server is fit, and the promises of flushers in it."""

import logging
from typing import Any, Final
from uuid import uuid4

import orjson

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import COUNT, PROBE, integer, transform
from shared.model.buckets import StoreMillis
from shared.model.errors import CountersinkError, SettingsError
from shared.model.receipts import FORGOTTEN, HOUR, Promise
from shared.model.words import Receipt

# Keeps the promises of flushers: one entity among the receipts, which never expires.


NAME: Final = "promises"
_ALL: Final = "promises"


async def promises_of(client: DatastoreClient) -> list[Promise]:
    return _read(await client.look_up_one(client.place.receipt(NAME)))


async def keep(client: DatastoreClient, one: Promise) -> None:
    """`ContendedError` if another flusher writes at the same time."""
    found = await client.look_up_one(client.place.receipt(NAME))
    kept = {promise[:2]: promise for promise in _read(found) if promise.seen > one.seen - FORGOTTEN}
    there = kept.get(one[:2], one)
    kept[one[:2]] = one._replace(seen=max(one.seen, there.seen))
    said = orjson.dumps([[*promise] for promise in kept.values()])
    await client.overwrite(client.place.receipt(NAME), found, _ALL, blob_value=said)


def _read(found: Any) -> list[Promise]:
    return [Promise(*row) for row in orjson.loads(found.entity.properties[_ALL].blob_value)] if found else []


# Refuses a server that can't add to a number by itself: the older emulator ignores transforms and erases entities.


_log = logging.getLogger(__name__)

OLDER: Final = (
    "the server of datastore://{} ignores property transforms, as the older Datastore emulator does, and would lose"
    " counts: start the other emulator, `gcloud emulators firestore start --database-mode=datastore-mode`, and set"
    " DATASTORE_EMULATOR_HOST to its address"
)
_SCRATCH_LIVES: Final = HOUR
"""Milliseconds until the scratch entity expires. It is deleted at once, or, if that fails, with old receipts."""


async def probe(client: DatastoreClient) -> None:
    """Add 2 to the 40 in a scratch entity that has other properties too, and look at the result. Raise `SettingsError`
    if the server did not add, or erased the other properties.
    """
    place, expires = client.place, StoreMillis(int(client.clock.now() * 1_000) + _SCRATCH_LIVES)
    scratch = place.receipt_entity(Receipt(f"{PROBE}{uuid4().hex}", expires, "probe"))
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
    entity = (await client.look_up_one(scratch.key)).entity
    return len(entity.properties) == len(scratch.properties) and integer(entity, COUNT) == 42  # noqa: PLR2004


async def _commit(client: DatastoreClient, what: str, value: Any) -> None:
    request = client.commit_request()
    getattr(request.mutations.add(), what).CopyFrom(value)
    await client.commit(request)
