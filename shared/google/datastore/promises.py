"""Keeps the promises of flushers in Datastore: one entity among the receipts, which never expires."""

from typing import Any, Final

import orjson

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.keys import DatastorePlace, unindexed
from shared.google.datastore.mutations import write
from shared.model.errors import AlreadyAppliedError, ContendedError
from shared.model.promises import FORGOTTEN, Promise

NAME: Final = "promises"
_ALL: Final = "promises"


async def find(client: DatastoreClient, place: DatastorePlace) -> list[Promise]:
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
