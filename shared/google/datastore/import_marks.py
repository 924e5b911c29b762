"""Moves the marks of imports in Datastore: only over the version that was read, or the commit fails."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from google.cloud.datastore_v1.types import entity as _entity

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace, Key, integer, name_of
from shared.google.datastore.mutations import by_name, write
from shared.model.errors import ChangedError
from shared.model.import_source import Mark

SOURCE: Final = "source"
COUNTER: Final = "counter"
TOTAL: Final = "total"
_Entity: Final = _entity.Entity.pb()


async def find(
    client: DatastoreClient, place: DatastorePlace, source: str, counters: Sequence[str]
) -> Mapping[str, int]:
    found = await client.look_up(_key(place, source, counter) for counter in dict.fromkeys(counters))
    return {one.entity.properties[COUNTER].string_value: integer(one.entity, TOTAL) for one in found.entities}


async def move(client: DatastoreClient, place: DatastorePlace, request: Any, marks: Sequence[Mark]) -> None:
    """Add the moves to the request. `ChangedError` if a mark does not hold the number that the import saw."""
    if not marks:
        return
    keys = {mark: _key(place, mark.source, mark.counter) for mark in marks}
    found = by_name((await client.look_up(keys.values())).entities)
    for mark, key in keys.items():
        one = found.get(name_of(key))
        if (integer(one.entity, TOTAL) if one else 0) != mark.seen:
            raise ChangedError(f"{mark.counter} has been imported meanwhile")
        write(request, _made(key, mark), one.version if one else 0)


def _key(place: DatastorePlace, source: str, counter: str) -> Key:
    """A hash of both, as a key name has room for little more than one of them. The length keeps them apart."""
    return place.key(place.kinds.mark, sha256(f"{len(source)}:{source}{counter}".encode()).hexdigest())


def _made(key: Key, mark: Mark) -> Any:
    entity = _Entity(key=key)
    entity.properties[SOURCE].string_value = mark.source
    entity.properties[COUNTER].string_value = mark.counter
    entity.properties[TOTAL].integer_value = mark.total
    for value in entity.properties.values():
        value.exclude_from_indexes = True
    return entity
