"""Keeps counters in Datastore (Firestore in Datastore mode), in Google's published model, and receipts beside them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import orjson

from shared.datastore import buckets
from shared.datastore.buckets import FollowedRules, close, followed_at
from shared.datastore.client import DELETES_AT_ONCE, HEARD, DatastoreClient, micros, millis
from shared.datastore.commit import TransformWriter, find, mark_in
from shared.datastore.feed import FeedRules
from shared.datastore.jobs import states_in
from shared.datastore.keys import (
    COUNT,
    DEAD,
    DELETED,
    ENVELOPE,
    KEY,
    LAST,
    NUM_SHARDS,
    PROBE,
    Key,
    Operator,
    expired,
    flaw_of,
    integer,
    name_of,
    query_of,
    receipt_of,
    shard_of,
    transform,
    where,
    within,
)
from shared.datastore.ranking import largest
from shared.datastore.shards import compact, remove
from shared.datastore.snapshot import LastShardNumbers, PastSnapshot
from shared.model.buckets import AHEAD, Followed, Instant, StoreMillis, WallMillis, WallSeconds, moved
from shared.model.errors import CountersinkError, LateError, SettingsError, TransientError
from shared.model.imports import Mark
from shared.model.jobs import JobState
from shared.model.receipts import FORGOTTEN, HOUR, Promise
from shared.model.words import Commit, Receipt, Receipts, View
from shared.ports.store import BucketShard, Config, Shard, Snapshot, StoredReceipt

_log = logging.getLogger(__name__)

# Reads everything that the store holds, kind by kind, at one instant.


PAGE: Final = 500
PAGE_OF_BUCKETS: Final = 50
"""Entities that may each have 366 counts."""


class DatastoreAuditData:
    """Reads every entity, which Google charges for: with each config also its guard, with each guard also its config.

    Entities of these kinds that are not Countersink's are skipped.
    """

    def __init__(self, client: DatastoreClient, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._client = client
        self._place = client.place
        self._time = snapshot.time

    async def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        async for results in self._pages(self._place.kinds.receipt):
            yield [StoredReceipt(receipt_of(one.entity), micros(one.update_time)) for one in results]

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        """A config that is younger than the guard of a set was made again, so the age of its counter is not known. A
        guard may also exist without a set: it then holds the mark of a dead receipt.
        """
        place = self._place
        async for results in self._pages(place.kinds.config):
            names = [name_of(one.entity.key)[1] for one in results]
            found = await self._look(map(place.guard, names))
            guards = {name: one for name, one in found.items() if LAST in one.entity.properties}
            configs = []
            for name, one in zip(names, results, strict=True):
                since = micros(one.create_time)
                anew = name in guards and micros(guards[name].create_time) < since
                number, flaw = integer(one.entity, NUM_SHARDS), flaw_of(one.entity, NUM_SHARDS)
                configs.append(Config(name, number, 0, WallSeconds(0 if anew else since / 1e6), flaw))
            yield configs
        async for results in self._pages(place.kinds.guard):
            names = [name_of(one.entity.key)[1] for one in results if LAST in one.entity.properties]
            there = await self._look(map(place.config, names))
            yield [Config(name, 0, 0, WallSeconds(0)) for name in names if name not in there]

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async for results in self._pages(self._place.kinds.shard):
            of = [(shard_of(one.entity.key), one) for one in results]
            yield [
                Shard(*shard, integer(one.entity, COUNT), micros(one.update_time), flaw_of(one.entity, COUNT))
                for shard, one in of
                if shard is not None
            ]

    async def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        async for results in self._pages(self._place.kinds.buckets, PAGE_OF_BUCKETS):
            yield [bucket for one in results for bucket in buckets.shards_in(one.entity)]

    async def marks(self) -> AsyncIterator[Sequence[Mark]]:
        async for results in self._pages(self._place.kinds.mark):
            yield [mark_in(one.entity) for one in results]

    async def jobs(self) -> AsyncIterator[Sequence[JobState]]:
        """Returns one page: entities whose names come between a job and its books belong to other jobs."""
        yield states_in([one.entity async for results in self._pages(self._place.kinds.job) for one in results])

    async def followed(self) -> Sequence[Followed]:
        return await followed_at(self._client, self._time)

    async def _look(self, keys: Iterable[Key]) -> Mapping[str, Any]:
        return {name: one for (_, name), one in (await self._client.find(keys, read_time=self._time)).items()}

    async def _pages(self, kind: str, size: int = PAGE) -> AsyncIterator[Sequence[Any]]:
        query = query_of(kind, size, order=KEY)
        async for results in self._client.pages(query, read_time=self._time):
            yield [one for one in results if name_of(one.entity.key)[1]]


STALE: Final = 1.0
"""Seconds. If no response has told the server's time for longer, `snapshot` asks for it, so that it is not too old."""
MOST_DEAD_NAMES: Final = 2**31 - 1
"""A limit for names of dead letters, which are few."""
MOST_DEAD: Final = 100
"""Dead receipts in one answer: each may be almost 1 MiB."""


_PROMISES: Final = "promises"
"""The name of an entity among the receipts that never expires, and of its property: what flushers promise."""


class DatastoreStore:
    """Implements `Store`. Its time is the server's, in microseconds since 1970.

    A snapshot contains every commit that this process has applied. It may lack what another process applied less than a
    round trip ago, which floors tell.
    """

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place
        self._numbers = LastShardNumbers()
        self._followed = FollowedRules(client)
        self._opening = asyncio.Lock()
        self._probed = False
        self._writer = TransformWriter(client)
        self._rules = FeedRules(client)

    async def check(self) -> None:
        """Raise `SettingsError` if the server would lose counts. The first use finds that out, so a process can start
        while the server is away.
        """
        if not self._probed:
            async with self._opening:
                if not self._probed:
                    await probe(self._client)
                    self._probed = True

    async def now(self) -> StoreMillis:
        """The server's time: the last that it told, plus what has passed since."""
        await self.check()
        return millis(await self._client.now(HEARD))

    async def _ask_time(self) -> Instant:
        await self.check()
        return await self._client.look_now()

    async def promises(self) -> Sequence[Promise]:
        return _promises_in(await self._client.look_up_one(self._place.receipt(_PROMISES)))

    async def promise(self, one: Promise) -> None:
        found = await self._client.look_up_one(self._place.receipt(_PROMISES))
        kept = {each[:2]: each for each in _promises_in(found) if each.seen > one.seen - FORGOTTEN}
        kept[one[:2]] = one._replace(seen=max(one.seen, kept.get(one[:2], one).seen))
        said = orjson.dumps([*map(tuple, kept.values())])
        await self._client.overwrite(self._place.receipt(_PROMISES), found, _PROMISES, blob_value=said)

    async def apply(self, commit: Commit) -> Instant:
        await self.check()
        if (by_time := commit.by_time) is not None:
            now = await self.now()
            await self._followed.promise(by_time.rules, now)
            latest = now + AHEAD - 1  # the promise holds for longer
            commit = replace(commit, by_time=by_time._replace(adds=tuple(moved(by_time.adds, 0, latest))))
        bound = commit.bounds.until
        if bound is not None and (now := await self.now()) > bound:
            raise LateError(now)
        if not commit.adds and commit.guard is None:
            return await self._writer.apply(commit)
        told, until = await self._rules.now()
        until = until if bound is None else min(bound, until)
        try:
            return await self._writer.apply(replace(commit, bounds=commit.bounds._replace(until=until)), told)
        except LateError as error:
            if bound is not None and error.reached > bound:
                raise
            raise TransientError("this process stood still, and looks at the rules of the feed again") from error

    async def close_periods(self, until: WallMillis) -> None:
        await close(self._client, until)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        await self.check()
        yield PastSnapshot(self._client, self._numbers, await self._client.now(STALE))

    @asynccontextmanager
    async def audit_data(self) -> AsyncIterator[DatastoreAuditData]:
        snapshot = PastSnapshot(self._client, self._numbers, await self._ask_time())
        yield DatastoreAuditData(self._client, snapshot)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        # A plain Lookup lacks commits that are up to 0.4 ms older than the time it tells (Firestore emulator).
        time = await self._ask_time()
        found = await self._client.look_up(map(self._place.receipt, keys), read_time=time)
        receipts = [receipt_of(one.entity) for one in found.entities]
        return Receipts(time, {receipt.key: receipt for receipt in receipts})

    async def receipts_from(self, prefix: str, after: str, limit: int) -> Sequence[Receipt]:
        query = query_of(self._place.kinds.receipt, limit, order=KEY, keys_only=True)
        keys = await self._client.names(within(query, self._place, prefix, after))
        found = (await self.receipts(keys)).found
        return [found[key] for key in keys if key in found]

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        query = query_of(self._place.kinds.receipt, limit, order=ENVELOPE, keys_only=True)
        where(query, ENVELOPE, Operator.GREATER_THAN_OR_EQUAL, string_value=first)
        where(query, ENVELOPE, Operator.LESS_THAN_OR_EQUAL, string_value=last)
        time = await self._ask_time()
        results = await self._client.query(query, read_time=time)
        return time, [name_of(one.entity.key)[1] for one in results]

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        query = query_of(self._place.kinds.receipt, min(limit, MOST_DEAD), order=KEY)
        where(query, DEAD, Operator.EQUAL, boolean_value=True)
        return [receipt_of(one.entity) for one in await self._client.query(within(query, self._place, "", after))]

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        found = await self._client.look_up(self._place.config(counter) for counter in dict.fromkeys(counters))
        numbers = {name_of(one.entity.key)[1]: integer(one.entity, NUM_SHARDS) for one in found.entities}
        for counter, number in numbers.items():
            self._numbers[counter] = number
        self._writer.note_absent(counter for counter in counters if counter not in numbers)
        return numbers

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return await find(self._client, source, counters)

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        await self.check()
        number = await self._writer.raise_shards(counter, num_shards, make=make)
        self._numbers[counter] = number
        return number

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        await self.check()
        number = await compact(self._client, counter, num_shards, receipt)
        self._numbers[counter] = number
        return number

    async def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """Uses the index of the number of shards, because most counters have one."""
        query = query_of(self._place.kinds.config, PAGE, order=NUM_SHARDS, keys_only=True)
        where(query, NUM_SHARDS, Operator.GREATER_THAN, integer_value=shards)
        async for page in self._client.pages(query, read_time=None):
            yield [name for name in (name_of(one.entity.key)[1] for one in page) if name]

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """The ages, by the server's clock alone."""
        names = {name_of(self._place.shard(*shard)): shard for shard in shards}
        found = await self._client.look_up(self._place.shard(*shard) for shard in names.values())
        return {names[name_of(one.entity.key)]: (found.time - micros(one.update_time)) / 1e6 for one in found.entities}

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        query = query_of(self._place.kinds.guard, limit, order=KEY, keys_only=True)
        where(query, DELETED, Operator.EQUAL, boolean_value=True)
        return await self._client.names(within(query, self._place, "", after))

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        found = await self._client.look_up(self._place.guard(counter) for counter in dict.fromkeys(counters))
        marked = [one.entity for one in found.entities if one.entity.properties[DELETED].boolean_value]
        return {name_of(entity.key)[1] for entity in marked}

    async def remove(self, counter: str) -> bool:
        return await remove(self._client, counter)

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        if until is not None and (until <= after or until < prefix):
            return []
        query = query_of(self._place.kinds.config, limit, order=KEY, keys_only=True)
        return await self._client.names(within(query, self._place, prefix, after, until))

    async def count(self, prefix: str, most: int) -> int:
        if most < 1:
            return 0  # the server counts up to 1 at least
        query = query_of(self._place.kinds.config, most, keys_only=True)
        return await self._client.count(within(query, self._place, prefix), most)

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Counters whose guards are marked. A mark is never removed."""
        query = query_of(self._place.kinds.guard, limit, order=KEY, keys_only=True)
        where(query, DEAD, Operator.EQUAL, boolean_value=True)
        return await self._client.names(within(query, self._place, prefix, after))

    async def largest(
        self, snapshot: Snapshot, prefixes: Sequence[str], limit: int, pending: Mapping[str, View]
    ) -> Sequence[str]:
        assert isinstance(snapshot, PastSnapshot)  # noqa: S101 - its own
        found: list[str] = []
        for prefix in prefixes:
            dead = await self.dead_names(prefix, "", MOST_DEAD_NAMES)
            found += [*dead, *await largest(snapshot, prefix, limit, pending, dead)]
        return found

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        kinds, most = self._place.kinds, min(limit, DELETES_AT_ONCE)
        seen = await self._client.query(expired(kinds.receipt, now, most))
        if len(seen) < most:
            seen += await self._client.query(expired(kinds.buckets, now, most - len(seen)))
        return await self._client.delete_seen(seen)


def _promises_in(found: Any) -> list[Promise]:
    return [Promise(*row) for row in orjson.loads(found.entity.properties[_PROMISES].blob_value)] if found else []


# Refuses a server that can't add to a number by itself: the older emulator ignores transforms and erases entities.


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
