"""The store in Datastore (Firestore in Datastore mode): Google's published counters, and receipts beside them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import nsmallest
from typing import Any, Final

from shared.google.datastore import promises
from shared.google.datastore.books import PAGE, DatastoreBooks
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.commit import BlindWay
from shared.google.datastore.compaction import compact
from shared.google.datastore.keys import (
    DEAD,
    DELETED,
    NUM_SHARDS,
    DatastorePlace,
    Key,
    integer,
    name_of,
    receipt_of,
)
from shared.google.datastore.marks import find
from shared.google.datastore.probe import Abilities, probe
from shared.google.datastore.queries import KEY, Operator, expired, query_of, where
from shared.google.datastore.removal import remove
from shared.google.datastore.snapshot import AgreeingSnapshot, Numbers, PastSnapshot
from shared.google.datastore.time import micros
from shared.google.datastore.versioned import VersionedWay
from shared.model.errors import LateError
from shared.model.promises import Promise
from shared.model.scale import last
from shared.model.words import Commit, Receipt, Receipts
from shared.ports.store import Snapshot
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

FIRST: Final = "\x00"
HEARD: Final = 30.0
"""Seconds after which the server is asked for its time, where nothing has told it meanwhile."""
STALE: Final = 1.0
"""Seconds after which the server is asked for its time, so that snapshots aren't of a time too long ago."""
DELETES_AT_ONCE: Final = 500
MOST_DEAD: Final = 100
"""Dead receipts in one answer: each may be almost 1 MiB."""
MOST_INT32: Final = 2**31 - 1


class DatastoreStore:
    """Its time is the server's: microseconds since 1970, or versions of the older emulator.

    A snapshot is not before any `apply` of this process; what another one applied less than a round trip ago it may
    not have: floors tell.
    """

    parallel = True

    def __init__(self, client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._clock = clock
        self._numbers = Numbers()
        self._opening = asyncio.Lock()
        self._opened: tuple[Abilities, BlindWay | VersionedWay] | None = None

    async def close(self) -> None:
        await self._client.close()

    async def abilities(self) -> Abilities:
        """What the server can do: found out the first time, so that nobody needs it in order to start."""
        return (await self._open())[0]

    async def _open(self) -> tuple[Abilities, BlindWay | VersionedWay]:
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._choose()
        return self._opened

    async def _choose(self) -> tuple[Abilities, BlindWay | VersionedWay]:
        client, place, clock = self._client, self._place, self._clock
        abilities = await probe(client, place, clock)
        blind = abilities.transforms and abilities.read_time
        way = "blindly, by transforms" if blind else "by reading and writing back"
        instant = "of one instant" if abilities.read_time else "not exact while anything is pending"
        _log.info("Datastore %s %s: sums are added %s; reads are %s", place.project, place.database, way, instant)
        return abilities, BlindWay(client, place, clock) if blind else VersionedWay(client, place)

    async def now(self) -> int:
        """The server's as last heard, and what has passed since; this machine's where the older emulator has none."""
        if not (await self.abilities()).read_time:
            return int(self._clock.now() * 1_000)
        time = self._client.time
        if time.age(self._clock.monotonic()) > HEARD:
            await self._ask_time()
        return time.bound(self._clock.monotonic()) // 1_000

    async def promises(self) -> Sequence[Promise]:
        return await promises.find(self._client, self._place)

    async def promise(self, one: Promise) -> None:
        await promises.keep(self._client, self._place, one)

    async def apply(self, commit: Commit) -> int:
        _, way = await self._open()
        if commit.bounds.until is not None and (now := await self.now()) > commit.bounds.until:
            raise LateError(now)
        return await way.apply(commit)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        client, now = self._client, self._clock.monotonic()
        if not (await self.abilities()).read_time:
            time = await self._ask_time()
            await asyncio.sleep(client.lag)
            yield AgreeingSnapshot(client, self._place, self._numbers, time, self._clock.now())
            return
        if client.time.age(now) > STALE:
            await self._ask_time()
        await asyncio.sleep(0)  # whoever waits for a floor to pass asks again and again
        time = client.time.bound(self._clock.monotonic())
        yield PastSnapshot(client, self._place, self._numbers, time, client.time.doubt)

    @asynccontextmanager
    async def books(self) -> AsyncIterator[DatastoreBooks]:
        time = await self._ask_time()
        yield DatastoreBooks(self._client, self._place, time if (await self.abilities()).read_time else None)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        # A plain Lookup lacks commits that are up to 0.4 ms older than the time it tells (Firestore emulator).
        time = await self._ask_time()
        at = time if (await self.abilities()).read_time else None
        found = await self._client.look_up((self._place.receipt(key) for key in keys), read_time=at)
        receipts = [receipt_of(one.entity) for one in found.entities]
        return Receipts(max(time, found.time), {receipt.key: receipt for receipt in receipts})

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        kind = self._place.kinds.receipt
        query = where(query_of(kind, min(limit, MOST_DEAD), order=KEY), DEAD, Operator.EQUAL, boolean_value=True)
        if after:
            where(query, KEY, Operator.GREATER_THAN, key_value=self._place.key(kind, after))
        return [receipt_of(one.entity) for one in await self._query(query)]

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        found = await self._client.look_up(self._place.config(counter) for counter in dict.fromkeys(counters))
        numbers = {name_of(one.entity.key)[1]: integer(one.entity, NUM_SHARDS) for one in found.entities}
        for counter, number in numbers.items():
            self._numbers.note(counter, number)
        return numbers

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return await find(self._client, self._place, source, counters)

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        _, way = await self._open()
        number = await way.raise_shards(counter, num_shards, make=make)
        self._numbers.note(counter, number)
        return number

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        _, way = await self._open()
        transforms = isinstance(way, BlindWay)
        number = await compact(self._client, self._place, counter, num_shards, receipt, transforms=transforms)
        self._numbers.note(counter, number)
        return number

    async def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """By the index of the numbers, as those of one shard are most."""
        query = query_of(self._place.kinds.config, PAGE, order=NUM_SHARDS, keys_only=True)
        where(query, NUM_SHARDS, Operator.GREATER_THAN, integer_value=shards)
        async for page in self._client.pages(self._nothing().partition_id, query, read_time=None):
            yield [name for name in (name_of(one.entity.key)[1] for one in page) if name]

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """By the server's clock alone; the older emulator does not tell."""
        if not (await self.abilities()).read_time:
            return {}
        names = {name_of(self._place.shard(*shard)): shard for shard in shards}
        found = await self._client.look_up(self._place.shard(*shard) for shard in names.values())
        return {names[name_of(one.entity.key)]: (found.time - micros(one.update_time)) / 1e6 for one in found.entities}

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        kind = self._place.kinds.guard
        query = where(query_of(kind, limit, order=KEY, keys_only=True), DELETED, Operator.EQUAL, boolean_value=True)
        if after:
            where(query, KEY, Operator.GREATER_THAN, key_value=self._place.key(kind, after))
        return [name_of(one.entity.key)[1] for one in await self._query(query)]

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        found = await self._client.look_up(self._place.guard(counter) for counter in dict.fromkeys(counters))
        marked = [one.entity for one in found.entities if one.entity.properties[DELETED].boolean_value]
        return {name_of(entity.key)[1] for entity in marked}

    async def remove(self, counter: str) -> bool:
        return await remove(self._client, self._place, counter)

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        if until is not None and (until <= after or until < prefix):
            return []
        query = query_of(self._place.kinds.config, limit, order=KEY, keys_only=True)
        return await self._names(query, prefix, after, until)

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Those that guards have the mark of, which is never taken back."""
        query = query_of(self._place.kinds.guard, limit, order=KEY, keys_only=True)
        where(query, DEAD, Operator.EQUAL, boolean_value=True)
        return await self._names(query, prefix, after, None)

    async def _names(self, query: Any, prefix: str, after: str, until: str | None) -> Sequence[str]:
        """What the query finds within these bounds, in the order of the names."""
        if not (await self.abilities()).read_time:
            return await self._names_of_older(query, prefix, after, until)
        kind = query.kind[0].name
        # One bound below: the later of both. Bytes of UTF-8 are in the order of code points, as strings are here.
        begin, operator = (
            (after, Operator.GREATER_THAN) if after >= prefix else (prefix, Operator.GREATER_THAN_OR_EQUAL)
        )
        # Without a bound there would be entities of others that have numbers for names.
        where(query, KEY, operator, key_value=self._place.key(kind, begin or FIRST))
        where(query, KEY, Operator.LESS_THAN_OR_EQUAL, key_value=self._place.key(kind, last(prefix, until)))
        return [name_of(one.entity.key)[1] for one in await self._query(query)]

    async def _names_of_older(self, query: Any, prefix: str, after: str, until: str | None) -> Sequence[str]:
        """The older emulator has names in the order of UTF-16: another one. So all are read, a few of them kept."""
        limit, query.limit.value = query.limit.value, MOST_INT32
        names = (name_of(one.entity.key)[1] for one in await self._query(query))
        inside = (name for name in names if name.startswith(prefix) and name > after)
        return nsmallest(limit, (name for name in inside if until is None or name <= until))

    async def sweep(self, now: int, limit: int) -> int:
        keys = [one.entity.key for one in await self._query(expired(self._place.kinds.receipt, now, limit))]
        for begin in range(0, len(keys), DELETES_AT_ONCE):
            request = self._client.commit_request()
            for key in keys[begin : begin + DELETES_AT_ONCE]:
                request.mutations.add().delete.CopyFrom(key)
            await self._client.commit(request)
        return len(keys)

    async def _query(self, query: Any) -> list[Any]:
        return await self._client.query(self._nothing().partition_id, query)

    async def _ask_time(self) -> int:
        return (await self._client.look_up([self._nothing()])).time

    def _nothing(self) -> Key:
        """Of an entity that is never there."""
        return self._place.receipt("nothing")
