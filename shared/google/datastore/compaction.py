"""Compacts a counter: moves what the highest shards hold to the shards that stay, and deletes the highest.

They are deleted over the versions that were read, and the config is lowered over its own version. A process that adds
to one of them meanwhile changes its version, or finds it gone and asks for the number of shards. Missing shards are
made first: otherwise the commit would not notice that another process makes one. The shards that stay are written to
all the time; the server itself adds there, so their versions do not matter.
"""

from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.keys import COUNT, NUM_SHARDS, DatastorePlace, Key, flaw_of, integer, name_of
from shared.google.datastore.mutations import by_name, delete, rewrite, transform
from shared.google.datastore.removal import look, make
from shared.google.datastore.shards import is_big
from shared.model.errors import AlreadyAppliedError, ContendedError, CrowdedError
from shared.model.sharding import moved
from shared.model.words import Receipt

MOST_SHARDS: Final = 200
"""How many shards one commit deletes. For each of them it may have to change another one, which takes its count."""


async def compact(
    client: DatastoreClient, place: DatastorePlace, counter: str, num_shards: int, receipt: Receipt
) -> int:
    """See `Store.compact`."""
    if (await client.look_up([place.receipt(receipt.key)])).entities:
        raise AlreadyAppliedError("the compaction with this receipt was done before")
    found = (await client.look_up([place.config(counter)])).entities
    number = integer(found[0].entity, NUM_SHARDS) if found else 0
    if number <= num_shards:
        return number
    target = max(num_shards, number - MOST_SHARDS)
    try:
        request = await _request(client, place, counter, target, found[0])
        request.mutations.add().insert.CopyFrom(place.receipt_entity(receipt))
        await client.commit(request, updates=True, versions=True)
    except (AlreadyAppliedError, MissingError) as error:
        raise ContendedError(str(error)) from error
    return target


async def _request(client: DatastoreClient, place: DatastorePlace, counter: str, target: int, config: Any) -> Any:
    """The commit without its receipt."""
    keys = [*place.shards(counter, target, integer(config.entity, NUM_SHARDS))]
    leaving = await look(client, keys)
    if len(leaving) < len(keys):
        leaving = await make(client, keys, leaving, config)
    if len(leaving) < len(keys):
        raise ContendedError("a shard was removed meanwhile")
    staying = [*place.shards(counter, 0, target)]
    there = by_name(await look(client, staying))
    seen = [there.get(name_of(key)) for key in staying]
    counts = [integer(one.entity, COUNT) if one else 0 for one in seen]
    for one in (*leaving, *filter(None, seen)):
        if flaw := flaw_of(one.entity, COUNT):
            raise CrowdedError(flaw)
    given = moved(counts, sum(integer(one.entity, COUNT) for one in leaving))
    if given is None:
        raise CrowdedError(f"{counter} holds too much for {target} shards")
    request = client.commit_request()
    for one in leaving:
        delete(request, one)
    rewrite(request, config).properties[NUM_SHARDS].integer_value = target
    for key, one, part in zip(staying, seen, given, strict=True):
        if part:
            _give(request, key, one, part)
    return request


def _give(request: Any, key: Key, seen: Any, part: int) -> None:
    if seen is None:
        entity = request.mutations.add().insert
        entity.key.CopyFrom(key)
        entity.properties[COUNT].integer_value = part
    elif not is_big(part):
        transform(request.mutations.add(), key, COUNT, update=True).increment.integer_value = part
    else:
        rewrite(request, seen).properties[COUNT].integer_value = integer(seen.entity, COUNT) + part
