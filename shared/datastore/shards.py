"""Remembers shards, so that a blind commit needs no read; compacts counters, and removes those that were deleted."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import (
    COUNT,
    DELETED,
    NUM_SHARDS,
    Key,
    delete,
    flaw_of,
    integer,
    name_of,
    rewrite,
    transform,
    version_of,
    write,
)
from shared.model.buckets import Monotonic
from shared.model.errors import AlreadyAppliedError, ContendedError, CrowdedError
from shared.model.words import SHARD_FULL, Lately, Receipt, moved

BIG: Final = 2**40
FULL_FOR_BIG: Final = 3 * 2**61
FRESH: Final = 600.0
MOST_STANDINGS: Final = 200_000
MOST_ABSENT: Final = 10_000
"""Counters without a config: more than one commit makes."""

Shard = tuple[str, int]
"""Counter and index."""


class ShardState(NamedTuple):
    """A shard as it was when it was seen last."""

    held: int = 0
    version: int = 0
    """0 if the shard did not exist."""
    readable: bool = False
    """Whether its config existed and covered it, so that readers look for it."""
    number: int = 0
    """The number of shards in its config; 0 if there was none, or if it was not looked up."""

    def full(self, delta: int) -> bool:
        if abs(self.held) > SHARD_FULL:
            return True
        return is_big(delta) and abs(self.held + delta) > FULL_FOR_BIG

    def settled(self) -> bool:
        """Whether an update is enough. Otherwise the commit makes the shard and raises its config."""
        return self.version > 0 and self.readable


def is_big(delta: int) -> bool:
    return abs(delta) > BIG


class ShardMemory:
    """The shards that were seen lately."""

    def __init__(self) -> None:
        self._standings: Lately[Shard, tuple[ShardState, float]] = Lately(MOST_STANDINGS)
        self._absent: Lately[str, float] = Lately(MOST_ABSENT)
        """Counters without a config, and when that was seen."""

    def get(self, shard: Shard, now: Monotonic) -> ShardState | None:
        """The state of the shard; None if it was not seen within ten minutes. No shard of an absent counter is
        readable, so none needs a look: the commit makes it, and raises the config to cover it.
        """
        standing, at = self._standings.get(shard) or (ShardState(), self._absent.get(shard[0], now - FRESH))
        return standing if now - at < FRESH else None

    def note_absent(self, counters: Iterable[str], now: Monotonic) -> None:
        for counter in counters:
            self._absent[counter] = now

    def note(self, shard: Shard, standing: ShardState, now: Monotonic) -> None:
        self.forget(shard)
        if standing.version:  # before it is made, a look has to tell whether a compaction removed it
            self._standings[shard] = (standing, now)

    def forget(self, shard: Shard) -> None:
        self._standings.pop(shard, None)
        self._absent.pop(shard[0], None)


# Removes what a deleted counter leaves behind: its shards and its config, over the versions that were read.


REMOVED_AT_ONCE: Final = 450
"""Shards that one commit removes. Counters with more shards are left as they are."""


async def remove(client: DatastoreClient, counter: str) -> bool:
    """Remove it, and return whether that was done; nothing is done if another process was faster.

    Missing shards are made first. A shard that does not exist has no version, so the commit would not notice that
    another process makes it: its config, which is high enough, would not change either.
    """
    place = client.place
    found = await client.find((place.guard(counter), place.config(counter)))
    guard, config = found.get(name_of(place.guard(counter))), found.get(name_of(place.config(counter)))
    if guard is None or not guard.entity.properties[DELETED].boolean_value:
        return False
    number = integer(config.entity, NUM_SHARDS) if config else 0
    if number > REMOVED_AT_ONCE:
        return False
    keys = [*place.shards(counter, 0, number)]
    try:
        shards = (await client.look_up(keys)).entities
        if config is not None and len(shards) < number and not _held(shards):
            shards = await make(client, keys, shards, config)
        if len(shards) < number or _held(shards):
            return False
        request = client.commit_request()
        for one in (*shards, *([config] if config else [])):
            delete(request, one)
        rewrite(request, guard).properties[DELETED].boolean_value = False
        await client.commit_over(request)
    except ContendedError:
        return False
    return True


async def make(client: DatastoreClient, keys: Sequence[Key], shards: Sequence[Any], config: Any) -> Sequence[Any]:
    """Make the missing shards, and return all of them. It fails if the config has changed: otherwise a process that
    remembers a removed shard would find it again, and add to what nobody reads any more.
    """
    there = {name_of(one.entity.key) for one in shards}
    request = client.commit_request()
    for key in keys:
        if name_of(key) not in there:
            write(request, client.place.entity(key), 0).properties[COUNT].integer_value = 0
    rewrite(request, config)
    response = await client.commit_over(request)
    config.version = response.mutation_results[-1].version  # a new one, although nothing in it has changed
    return (await client.look_up(keys)).entities


def _held(shards: Iterable[Any]) -> int:
    """Whether the shards hold anything but 0. A value that is no number counts as something."""
    return sum(integer(shard.entity, COUNT) for shard in shards) or any(
        flaw_of(shard.entity, COUNT) for shard in shards
    )


# Compacts a counter: moves what the highest shards hold to the shards that stay, and deletes the highest.


COMPACTED_AT_ONCE: Final = 200
"""How many shards one commit deletes. For each of them it may have to change another one, which takes its count."""


async def compact(client: DatastoreClient, counter: str, num_shards: int, receipt: Receipt) -> int:
    place = client.place
    if await client.look_up_one(place.receipt(receipt.key)):
        raise AlreadyAppliedError("the compaction with this receipt was done before")
    config = await client.look_up_one(place.config(counter))
    number = integer(config.entity, NUM_SHARDS) if config else 0
    if number <= num_shards:
        return number
    target = max(num_shards, number - COMPACTED_AT_ONCE)
    request = await _request(client, counter, target, config)
    request.mutations.add().insert.CopyFrom(place.receipt_entity(receipt))
    await client.commit_over(request)
    return target


async def _request(client: DatastoreClient, counter: str, target: int, config: Any) -> Any:
    """The commit without its receipt."""
    keys = [*client.place.shards(counter, target, integer(config.entity, NUM_SHARDS))]
    leaving = (await client.look_up(keys)).entities
    if len(leaving) < len(keys):
        leaving = await make(client, keys, leaving, config)
    if len(leaving) < len(keys):
        raise ContendedError("a shard was removed meanwhile")
    staying = [*client.place.shards(counter, 0, target)]
    there = await client.find(staying)
    seen = [there.get(name_of(key)) for key in staying]
    counts = [integer(one.entity, COUNT) if one else 0 for one in seen]
    for one in (*leaving, *filter(None, seen)):
        if flaw := flaw_of(one.entity, COUNT):
            raise CrowdedError(flaw)
    given = moved(counter, counts, sum(integer(one.entity, COUNT) for one in leaving))
    request = client.commit_request()
    for one in leaving:
        delete(request, one)
    rewrite(request, config).properties[NUM_SHARDS].integer_value = target
    for key, one, part in zip(staying, seen, given, strict=True):
        if part and one is not None and not is_big(part):
            transform(request.mutations.add(), key, COUNT, update=True).increment.integer_value = part
        elif part:
            held = client.place.entity(key) if one is None else one.entity
            write(request, held, version_of(one)).properties[COUNT].integer_value = integer(held, COUNT) + part
    return request
