"""Owns the removal of what a deleted counter has left: shards and config, of the very versions that were seen."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient, only_over
from shared.google.datastore.errors import MissingError
from shared.google.datastore.keys import COUNT, DELETED, NUM_SHARDS, DatastorePlace, Key, flaw_of, integer, name_of
from shared.model.errors import AlreadyAppliedError, ContendedError

MOST_SHARDS: Final = 450
"""Of one commit. Counters of more are left as they are."""


async def remove(client: DatastoreClient, place: DatastorePlace, counter: str) -> bool:
    """Whether it did; if others were faster, it did nothing.

    A shard that is not there would have no version that changes when somebody makes it, and its config, which is high
    enough, would not change either. So all are made before.
    """
    found = {name_of(one.entity.key): one for one in await look(client, (place.guard(counter), place.config(counter)))}
    guard, config = found.get(name_of(place.guard(counter))), found.get(name_of(place.config(counter)))
    if guard is None or not guard.entity.properties[DELETED].boolean_value:
        return False
    number = integer(config.entity, NUM_SHARDS) if config else 0
    if number > MOST_SHARDS:
        return False
    keys = [*place.shards(counter, 0, number)]
    try:
        shards = await look(client, keys)
        if config is not None and len(shards) < number and not _held(shards):
            shards = await make(client, keys, shards, config)
        if len(shards) < number or _held(shards):
            return False
        request = client.commit_request()
        for one in (*shards, *([config] if config else [])):
            mutation = request.mutations.add()
            mutation.delete.CopyFrom(one.entity.key)
            only_over(one.version, mutation)
        mutation = request.mutations.add()
        mutation.update.CopyFrom(guard.entity)
        mutation.update.properties[DELETED].boolean_value = False
        only_over(guard.version, mutation)
        await client.commit(request, updates=True, versions=True)
    except (AlreadyAppliedError, ContendedError, MissingError):
        return False
    return True


async def make(client: DatastoreClient, keys: Sequence[Key], shards: Sequence[Any], config: Any) -> Sequence[Any]:
    """Those that are not there; all of them. They are made only while the config is what it was: otherwise somebody who
    remembers one of them would find it, and add to what nobody reads any more.
    """
    there = {name_of(one.entity.key) for one in shards}
    request = client.commit_request()
    for key in keys:
        if name_of(key) not in there:
            entity = request.mutations.add().insert
            entity.key.CopyFrom(key)
            entity.properties[COUNT].integer_value = 0
    mutation = request.mutations.add()
    mutation.update.CopyFrom(config.entity)
    only_over(config.version, mutation)
    response = await client.commit(request, updates=True, versions=True)
    config.version = response.mutation_results[-1].version  # though nothing in it has changed
    return await look(client, keys)


def _held(shards: Iterable[Any]) -> int:
    """What is no number is not nothing."""
    return sum(integer(shard.entity, COUNT) for shard in shards) or any(
        flaw_of(shard.entity, COUNT) for shard in shards
    )


async def look(client: DatastoreClient, keys: Iterable[Key]) -> Sequence[Any]:
    return (await client.look_up(keys)).entities
