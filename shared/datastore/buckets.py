"""Counts by time in Datastore, and the entity that says which rules flushers follow and which periods are closed; what
a copy writes of both.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from shared.datastore.client import DatastoreClient
from shared.datastore.jobs import insert
from shared.datastore.keys import (
    EXPIRES,
    KEY,
    DatastorePlace,
    Key,
    Operator,
    flaw_of,
    inexact,
    integer,
    name_of,
    only_over,
    query_of,
    said,
    version_of,
    where,
    whole,
    write,
)
from shared.datastore.shards import FULL_FOR_BIG, Shard, is_big
from shared.model.buckets import (
    FOR_EVER,
    HOUR,
    LENGTHS,
    NEVER,
    BucketAdd,
    ByTime,
    Counts,
    Followed,
    Instant,
    Rules,
    StoreMillis,
    TimeBucket,
    WallMillis,
    begin_at,
    followed_of,
    followed_too,
    index_of,
    text_of,
)
from shared.model.errors import AlreadyAppliedError, ContendedError, ShardFullError
from shared.model.jobs import JobState
from shared.model.words import SHARD_FULL, pages
from shared.ports.store import BucketShard
from shared.runtime.retry import after_conflict, insist, tries

IN_ENTITY: Final[Mapping[str, int]] = {"minute": 60, "hour": 24, "day": 366}
MOST_FULL: Final = 10_000
_APART: Final = "\x1f"
"""Stands between the parts of an entity's name. No counter's name holds it."""
_DIGITS: Final = 9
"""Digits of a number in a name, at least: so names are in the order of time."""
_PAGE: Final = 200
_NAME: Final = re.compile(rf"(.+){_APART}({'|'.join(LENGTHS)}){_APART}(\d{{{_DIGITS},}}){_APART}(\d+)", re.ASCII)
_PLACE: Final = re.compile(r"p(0|[1-9]\d{0,2})", re.ASCII)


@dataclass(slots=True)
class EntityAdd:
    """What a commit adds to one entity."""

    key: Key
    shard: Shard
    expires: StoreMillis
    sums: dict[str, int] = field(default_factory=dict)
    """The sums, by the names of properties."""

    def places(self) -> Iterable[tuple[str, str]]:
        """The buckets: name of the entity, and of the property."""
        return ((name_of(self.key)[1], name) for name in self.sums)


class BlindBuckets:
    """Lets the server add to buckets, and remembers which it found to be full.

    A bucket that is not known is not looked at, unless much is added. It is at most as full as the last process left
    it, which stopped at 2^62.
    """

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place
        self._full: set[tuple[str, str]] = set()

    async def add(self, request: Any, by_time: ByTime | None) -> dict[int, EntityAdd]:
        """Add to the request what is added to buckets. Returns it, by the place of its mutation."""
        adds = entity_adds(self._place, by_time)
        full = {place: add.shard for add in adds for place in add.places() if place in self._full}
        self._full -= full.keys()  # others may empty it, and then it must not count as full
        big = [add for add in adds if any(map(is_big, add.sums.values()))]
        found = await self._client.find(add.key for add in big) if big else {}
        shards = {*full.values()} | {add.shard for add in big if _full(found.get(name_of(add.key)), add)}
        if shards:
            raise ShardFullError(shards)
        first = len(request.mutations)
        for add in adds:
            if add not in big:
                _transform(request, add)
            elif (seen := found.get(name_of(add.key))) is not None:
                only_over(seen.version, _transform(request, add))
            else:
                fill(write(request, self._place.entity(add.key), 0), add)
        return dict(enumerate(adds, first))

    def learn(self, response: Any, adds: Mapping[int, EntityAdd]) -> None:
        """Take what the buckets hold now."""
        for number, add in adds.items():
            results = response.mutation_results[number].transform_results
            for place, value in zip(add.places(), results, strict=False):  # an insert has no results
                if inexact(value) or abs(whole(value) or 0) > SHARD_FULL:
                    self._full.add(place)
        if len(self._full) > MOST_FULL:
            self._full.clear()


def _transform(request: Any, add: EntityAdd) -> Any:
    mutation = request.mutations.add()
    mutation.upsert.key.CopyFrom(add.key)
    _expire(mutation.upsert, add)
    mutation.property_mask.paths.append(EXPIRES)
    for name, delta in add.sums.items():
        mutation.property_transforms.add(property=name).increment.integer_value = delta
    return mutation


async def counts_at(
    client: DatastoreClient, time: Instant, *, counter: str, by: str, begin: WallMillis, end: WallMillis
) -> Counts:
    """The counts of the buckets that begin in this range, at `time`."""
    entities, followed, closed = await asyncio.gather(
        _entities_at(client, time, counter=counter, by=by, begin=begin, end=end),
        followed_at(client, time),
        closed_at(client, time),
    )
    counts: dict[WallMillis, int] = {}
    for one in entities:
        first = int(name_of(one.entity.key)[1].split(_APART)[2]) * IN_ENTITY[by]
        for name in one.entity.properties:
            if name != EXPIRES:
                when = begin_at(by, first + int(name[1:]))
                if begin <= when < end:
                    counts[when] = counts.get(when, 0) + integer(one.entity, name)
    return Counts(counts, followed, closed)


async def _entities_at(
    client: DatastoreClient, time: Instant, *, counter: str, by: str, begin: WallMillis, end: WallMillis
) -> list[Any]:
    """The entities that hold buckets of this range."""
    if begin >= end:
        return []
    many = IN_ENTITY[by]
    numbers = index_of(by, begin) // many, index_of(by, end - 1) // many + 1
    query = query_of(client.place.kinds.buckets, _PAGE, order=KEY)
    first, behind = (_key(client.place, (counter, by, _number(number))) for number in numbers)
    where(query, KEY, Operator.GREATER_THAN_OR_EQUAL, key_value=first)
    where(query, KEY, Operator.LESS_THAN, key_value=behind)
    return [one async for page in client.pages(query, read_time=time) for one in page]


def shards_in(entity: Any) -> Iterator[BucketShard]:
    """All counts in an entity, which another application may have changed; none if it is not one of ours."""
    if (ours := _NAME.fullmatch(name_of(entity.key)[1])) is None:
        return
    counter, by, number, shard = ours[1], ours[2], int(ours[3]), int(ours[4])
    kept = entity.properties[EXPIRES].timestamp_value.ToMilliseconds() if EXPIRES in entity.properties else NEVER
    for name in entity.properties:
        if name != EXPIRES:
            inside = int(name[1:]) if _PLACE.fullmatch(name) else IN_ENTITY[by]
            bucket = TimeBucket(counter, by, begin_at(by, number * IN_ENTITY[by] + inside))
            flaw = flaw_of(entity, name) if inside < IN_ENTITY[by] else f"{name} of {said(entity.key)} is no {by}"
            yield BucketShard(bucket, integer(entity, name), flaw, shard, StoreMillis(kept))


def entity_adds(place: DatastorePlace, by_time: ByTime | None) -> Collection[EntityAdd]:
    found: dict[tuple[str, ...], EntityAdd] = {}
    for bucket, shard, delta, expires in by_time.adds if by_time is not None else ():
        number, inside = divmod(index_of(bucket.by, bucket.begin), IN_ENTITY[bucket.by])
        name = (bucket.counter, bucket.by, _number(number), str(shard))
        there = found.get(name)
        if there is None:
            last = expires + (IN_ENTITY[bucket.by] - 1 - inside) * LENGTHS[bucket.by]
            there = found[name] = EntityAdd(_key(place, name), (bucket.counter, shard), StoreMillis(last))
        there.sums[f"p{inside}"] = there.sums.get(f"p{inside}", 0) + delta
    return found.values()


def _number(number: int) -> str:
    return f"{number:0{_DIGITS}}"


def _key(place: DatastorePlace, parts: Sequence[str]) -> Key:
    return place.key(place.kinds.buckets, _APART.join(parts))


def _full(found: Any, add: EntityAdd) -> bool:
    """Whether the commit must not add to this entity, as it was found."""
    if found is None:
        return any(abs(delta) >= FULL_FOR_BIG for delta in add.sums.values())
    for name, delta in add.sums.items():
        held = integer(found.entity, name)
        if flaw_of(found.entity, name) or abs(held) > SHARD_FULL or abs(held + delta) >= FULL_FOR_BIG:
            return True
    return False


def fill(entity: Any, add: EntityAdd) -> None:
    """Write the sums into the entity, in place of what these properties hold."""
    _expire(entity, add)
    for name, delta in add.sums.items():
        entity.properties[name].integer_value = delta


def _expire(entity: Any, add: EntityAdd) -> None:
    entity.properties[EXPIRES].timestamp_value.FromMilliseconds(add.expires)


# Keeps two entities among the receipts: which rules of counts by time flushers promised to follow, and until when;
# and until when periods are closed.


NAME: Final = "followed-rules"
RENEWED: Final = HOUR
"""Milliseconds after which a promise is renewed."""
FORCE: Final = RENEWED + HOUR
"""Milliseconds for which it holds. An hour of them is for clocks of ingests that are ahead."""
_ALL: Final = "followed"
CLOSED: Final = "closed-periods"
"""The name of the other entity, and of its property."""
_TRIES: Final = 10


class FollowedRules:
    """Makes the promises of one process. Flushers with the same rules share them."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place
        self._ours = Followed((), 0)

    async def promise(self, rules: Rules, now: StoreMillis) -> None:
        """Promise that commits follow these rules. `ContendedError` if another flusher promises at the same time."""
        if self._ours.rules != rules or self._ours.until < now + FORCE - RENEWED:
            self._ours = await self._promise(rules, now)

    async def _promise(self, rules: Rules, now: StoreMillis) -> Followed:
        found = await self._client.look_up_one(self._place.receipt(NAME))
        there = await followed_in(self._client, found, None, unknown=now + FORCE)
        for one in there if found else ():
            if one.rules == rules and one.until >= now + FORCE - RENEWED:
                return one
        ours = Followed(rules, now + FORCE)
        await keep_followed(self._client, found, followed_too(there, ours))
        return ours


async def keep_followed(client: DatastoreClient, found: Any, followed: Iterable[Followed]) -> None:
    """Write the followed rules over the entity that was found. `ContendedError` if it has changed since."""
    await client.overwrite(client.place.receipt(NAME), found, _ALL, blob_value=text_of(followed).encode())


async def followed_at(client: DatastoreClient, time: Instant) -> Sequence[Followed]:
    """Which rules were followed, as far as the store knew it at `time`."""
    found = await client.look_up_one(client.place.receipt(NAME), read_time=time)
    return await followed_in(client, found, time, unknown=FOR_EVER)


async def followed_in(client: DatastoreClient, found: Any, time: Instant | None, *, unknown: int) -> Sequence[Followed]:
    """`unknown`: until when no rules were followed if there are counts, and nobody has ever promised anything. They are
    of another application.
    """
    if found:
        return followed_of(found.entity.properties[_ALL].blob_value)
    query = query_of(client.place.kinds.shard, 1, keys_only=True)
    async for page in client.pages(query, read_time=time):
        if page:
            return [Followed((), unknown)]
    return []


async def closed_at(client: DatastoreClient, time: Instant | None = None, transaction: bytes = b"") -> WallMillis:
    """The end of the closed periods, as the store knew it at `time`, or for a transaction, as in `look_up_one`."""
    return _closed(await client.look_up_one(client.place.receipt(CLOSED), read_time=time, transaction=transaction))


async def close(client: DatastoreClient, until: WallMillis) -> None:

    async def once() -> None:
        found = await client.look_up_one(client.place.receipt(CLOSED))
        if until > _closed(found):
            await client.overwrite(client.place.receipt(CLOSED), found, CLOSED, integer_value=until)

    await insist(once, ContendedError, tries(_TRIES), after_conflict())


def _closed(found: Any) -> WallMillis:
    return integer(found.entity, CLOSED) if found else 0


# Writes what a copy brings, beside the store's commits.


AT_ONCE: Final = 100
"""Entities in a commit. Each may hold 366 counts, some 10 kB."""


class DatastoreArrivals:
    """Implements `Arrivals`."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place

    async def follow(self, followed: Sequence[Followed]) -> None:
        async def once() -> None:
            found = await self._client.look_up_one(self._place.receipt(NAME))
            latest = max((one.until for one in followed), default=0)
            known = await followed_in(self._client, found, None, unknown=latest)
            await keep_followed(self._client, found, reduce(followed_too, followed, known))

        await insist(once, ContendedError, tries(_TRIES), after_conflict())

    async def held(self, counts: Sequence[BucketAdd]) -> Sequence[int | None]:
        keys = [add.key for add in entity_adds(self._place, ByTime(tuple(counts)))]
        found = await self._client.find(keys)
        return [self._held(found, one) for one in counts]

    async def put(self, counts: Sequence[BucketAdd]) -> None:
        for some in pages(entity_adds(self._place, ByTime(tuple(counts))), AT_ONCE):

            async def once(some: Sequence[Any] = some) -> None:
                found = await self._client.find(add.key for add in some)
                request = self._client.commit_request()
                for add in some:
                    there = found.get(name_of(add.key))
                    before = self._place.entity(add.key) if there is None else there.entity
                    fill(write(request, before, version_of(there)), add)
                await self._client.commit_over(request)

            await insist(once, ContendedError, tries(_TRIES), after_conflict())

    async def keep(self, jobs: Sequence[JobState]) -> None:
        for job in jobs:
            with suppress(AlreadyAppliedError):
                await insert(self._client, job)

    def _held(self, found: Mapping[tuple[str, str], Any], one: BucketAdd) -> int | None:
        (add,) = entity_adds(self._place, ByTime((one,)))
        (name,) = add.sums
        there = found.get(name_of(add.key))
        return integer(there.entity, name) if there is not None and name in there.entity.properties else None
