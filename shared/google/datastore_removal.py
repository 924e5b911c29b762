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
    number = integer(config.entity, NUM_SHARDS) if config else 0
    if number > MOST_SHARDS:
        return False
    keys = [*place.shards(counter, 0, number)]
    try:
        shards = await _look(client, keys)
        if len(shards) < number and not _held(shards):
            await _make(client, keys, shards)
            shards = await _look(client, keys)
        if len(shards) < number or _held(shards):
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


async def _make(client: DatastoreClient, keys: Sequence[Key], shards: Sequence[Any]) -> None:
    """Those that are not there."""
    there = {name_of(one.entity.key) for one in shards}
    request = client.commit_request()
    for key in keys:
        if name_of(key) not in there:
            entity = request.mutations.add().insert
            entity.key.CopyFrom(key)
            entity.properties[COUNT].integer_value = 0
    await client.commit(request)


def _held(shards: Iterable[Any]) -> int:
    return sum(integer(shard.entity, COUNT) for shard in shards)


async def _look(client: DatastoreClient, keys: Iterable[Key]) -> Sequence[Any]:
    return (await client.look_up(keys)).entities


def _only(mutation: Any, seen: Any) -> None:
    mutation.base_version = seen.version
    mutation.conflict_resolution_strategy = CONFLICT_FAILS
