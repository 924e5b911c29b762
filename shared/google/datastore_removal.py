"""Owns the removal of what a deleted counter has left: shards and config, of the very versions that were seen."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.errors import AlreadyAppliedError
from shared.google.datastore_client import CONFLICT_FAILS, DatastoreClient
from shared.google.datastore_errors import ContendedError, MissingError
from shared.google.datastore_keys import COUNT, DELETED, NUM_SHARDS, Key, Place, integer, name_of

MOST_SHARDS: Final = 450
"""Of one commit. Counters of more are left as they are."""


async def remove(client: DatastoreClient, place: Place, counter: str) -> bool:
    """Whether it did; if others were faster, it did nothing.

    A shard that is not there would have no version that changes when somebody makes it, and its config, which is high
    enough, would not change either. So all are made before.
    """
    found = {name_of(one.entity.key): one for one in await _look(client, (place.guard(counter), place.config(counter)))}
    guard, config = found.get(name_of(place.guard(counter))), found.get(name_of(place.config(counter)))
    if guard is None or not guard.entity.properties[DELETED].boolean_value:
        return False
    keys = [*place.shards(counter, 0, integer(config.entity, NUM_SHARDS) if config else 0)]
    if len(keys) > MOST_SHARDS:
        return False
    try:
        shards = await _all(client, keys)
        if sum(integer(shard.entity, COUNT) for shard in shards):
            return False
        request = client.commit_request()
        for one in (*shards, *([config] if config else [])):
            mutation = request.mutations.add()
            mutation.delete.CopyFrom(one.entity.key)
            _only(mutation, one)
        mutation = request.mutations.add()
        mutation.update.CopyFrom(guard.entity)
        mutation.update.properties[DELETED].boolean_value = False
        _only(mutation, guard)
        await client.commit(request, updates=True, versions=True)
    except (AlreadyAppliedError, ContendedError, MissingError):
        return False
    return True


async def _all(client: DatastoreClient, keys: Sequence[Key]) -> Sequence[Any]:
    """The shards, those among them that were not there."""
    shards = await _look(client, keys)
    there = {name_of(one.entity.key) for one in shards}
    absent = [key for key in keys if name_of(key) not in there]
    if not absent:
        return shards
    request = client.commit_request()
    for key in absent:
        entity = request.mutations.add().insert
        entity.key.CopyFrom(key)
        entity.properties[COUNT].integer_value = 0
    await client.commit(request)
    shards = await _look(client, keys)
    if len(shards) < len(keys):
        raise ContendedError("a shard was removed meanwhile")
    return shards


async def _look(client: DatastoreClient, keys: Iterable[Key]) -> Sequence[Any]:
    return (await client.look_up(keys)).entities


def _only(mutation: Any, seen: Any) -> None:
    mutation.base_version = seen.version
    mutation.conflict_resolution_strategy = CONFLICT_FAILS
