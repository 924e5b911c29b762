"""Removes what a deleted counter leaves behind: its shards and its config, over the versions that were read."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.keys import COUNT, DELETED, NUM_SHARDS, DatastorePlace, Key, flaw_of, integer, name_of
from shared.google.datastore.mutations import by_name, delete, rewrite
from shared.model.errors import AlreadyAppliedError, ContendedError

MOST_SHARDS: Final = 450
"""Shards that one commit removes. Counters with more shards are left as they are."""


async def remove(client: DatastoreClient, place: DatastorePlace, counter: str) -> bool:
    """Remove it, and return whether that was done; nothing is done if another process was faster.

    Missing shards are made first. A shard that does not exist has no version, so the commit would not notice that
    another process makes it: its config, which is high enough, would not change either.
    """
    found = by_name(await look(client, (place.guard(counter), place.config(counter))))
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
            delete(request, one)
        rewrite(request, guard).properties[DELETED].boolean_value = False
        await client.commit(request, updates=True, versions=True)
    except (AlreadyAppliedError, ContendedError, MissingError):
        return False
    return True


async def make(client: DatastoreClient, keys: Sequence[Key], shards: Sequence[Any], config: Any) -> Sequence[Any]:
    """Make the missing shards, and return all of them. It fails if the config has changed: otherwise a process that
    remembers a removed shard would find it again, and add to what nobody reads any more.
    """
    there = by_name(shards)
    request = client.commit_request()
    for key in keys:
        if name_of(key) not in there:
            entity = request.mutations.add().insert
            entity.key.CopyFrom(key)
            entity.properties[COUNT].integer_value = 0
    rewrite(request, config)
    response = await client.commit(request, updates=True, versions=True)
    config.version = response.mutation_results[-1].version  # a new one, although nothing in it has changed
    return await look(client, keys)


def _held(shards: Iterable[Any]) -> int:
    """Whether the shards hold anything but 0. A value that is no number counts as something."""
    return sum(integer(shard.entity, COUNT) for shard in shards) or any(
        flaw_of(shard.entity, COUNT) for shard in shards
    )


async def look(client: DatastoreClient, keys: Iterable[Key]) -> Sequence[Any]:
    return (await client.look_up(keys)).entities
