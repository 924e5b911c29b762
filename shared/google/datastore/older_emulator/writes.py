"""Applies a commit by reading entities, adding to them, and writing them back if they have not changed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from shared.google.datastore.buckets import add_over_versions
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.fleet import check_epoch
from shared.google.datastore.followed_rules import closed_over_version
from shared.google.datastore.guards import check, complete
from shared.google.datastore.keys import COUNT, NUM_SHARDS, DatastorePlace, flaw_of, integer, name_of, number_in
from shared.google.datastore.mutations import by_name, write
from shared.google.datastore.shards import Shard
from shared.google.datastore.sums import Sums
from shared.model.buckets import FOR_EVER, moved
from shared.model.errors import AlreadyAppliedError, ContendedError, ShardFullError, ShrunkError
from shared.model.times import BEGINNING, Instant
from shared.model.words import SHARD_FULL, Commit, Receipt
from shared.runtime.backoff import Backoff, insist, tries

_TRIES: Final = 20
_END: Final = 2**63 - 1


class VersionWriter:
    """For servers without property transforms: the older emulator would erase the entity.

    This is the original algorithm of sharded counters with receipts, and with versions instead of a transaction that
    holds locks from the read to the commit. The emulator lets such transactions wait for each other for seconds: 8
    writers on one shard reached 3 commits/s.
    """

    def __init__(self, client: DatastoreClient, place: DatastorePlace) -> None:
        self._client = client
        self._place = place
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def apply(self, commit: Commit) -> Instant:
        sums = Sums(commit)

        async def prepare() -> Any:
            await check(self._client, self._place, commit)
            request = self._client.commit_request()
            await self._add(request, sums)
            if (by_time := commit.by_time) is not None and by_time.adds:
                closed = await closed_over_version(self._client, self._place, request)
                adds = tuple(moved(by_time.adds, closed, FOR_EVER))
                await add_over_versions(self._client, self._place, request, by_time._replace(adds=adds))
            await complete(self._client, self._place, request, commit)
            if commit.bounds.epoch is not None:
                await check_epoch(self._client, self._place, b"", commit.bounds.epoch)
            return request

        counters = {*sums.counters(), *(commit.guard or ())[:1], *(mark.counter for mark in commit.marks)}
        response = await self._run(counters, commit.receipts, prepare)
        # An entity to which 0 was added keeps its old version. Receipts are always new.
        return Instant(max((result.version for result in response.mutation_results), default=BEGINNING))

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool) -> int:
        number = num_shards

        async def prepare() -> Any:
            nonlocal number
            key = self._place.config(counter)
            config = (await self._read([key])).get(name_of(key))
            request = self._client.commit_request()
            number = 0
            if config is not None or make:
                number = max(num_shards, integer(config.entity, NUM_SHARDS) if config else 0)
                self._put(request, key, config, NUM_SHARDS, number)
            return request

        await self._run([counter], (), prepare)
        return number

    async def _add(self, request: Any, sums: Sums) -> None:
        keys = {shard: self._place.shard(*shard) for shard in sums.shards}
        shards = await self._read(keys.values())
        full: list[Shard] = []
        for shard, key in keys.items():
            one = shards.get(name_of(key))
            count = integer(one.entity, COUNT) if one else 0
            total = count + sums.shards[shard]
            if (one and flaw_of(one.entity, COUNT)) or abs(count) > SHARD_FULL or abs(total) > _END:
                full.append(shard)
            else:
                self._put(request, key, one, COUNT, total)
        if full:
            raise ShardFullError(full)
        absent = {shard[0] for shard, key in keys.items() if name_of(key) not in shards}
        configs = {counter: self._place.config(counter) for counter in absent}
        found = await self._read(configs.values())
        numbers: dict[str, int] = {}
        for counter, key in configs.items():
            # Written even if it is high enough, so that the commit fails if it is deleted meanwhile.
            config = found.get(name_of(key))
            numbers[counter] = number_in(config)
            number = max(numbers[counter], sums.number(counter, numbers[counter]))
            self._put(request, key, config, NUM_SHARDS, number)
        gone = {one for one, key in keys.items() if name_of(key) not in shards and sums.shrunk(one, numbers[one[0]])}
        if gone:
            raise ShrunkError({counter for counter, _ in gone})

    async def _read(self, keys: Iterable[Any]) -> Mapping[tuple[str, str], Any]:
        return by_name((await self._client.look_up(keys)).entities)

    def _put(self, request: Any, key: Any, found: Any, name: str, value: int) -> None:
        """Set one property and keep the others. The commit fails if the entity changes, or appears, before it."""
        entity, version = (found.entity, found.version) if found is not None else (self._place.entity(key), 0)
        write(request, entity, version).properties[name].integer_value = value

    async def _run(
        self, counters: Iterable[str], receipts: Collection[Receipt], prepare: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Repeat the commit while other processes are first. In this process, commits to a counter take turns."""
        async with self._alone(counters):
            once = partial(self._once, receipts, prepare)
            return await insist(once, ContendedError, tries(_TRIES), Backoff(0.01, 0.5))

    async def _once(self, receipts: Collection[Receipt], prepare: Callable[[], Awaitable[Any]]) -> Any:
        request = await prepare()
        try:
            return await self._client.commit(request, updates=True, versions=True)
        except MissingError as error:
            raise ContendedError(str(error)) from error
        except AlreadyAppliedError as error:
            # The error names no entity: another process may have just made a shard or a config that was missing.
            keys = [self._place.receipt(receipt.key) for receipt in receipts]
            if len(receipts) < len(request.mutations) and not await self._read(keys):
                raise ContendedError(str(error)) from error
            raise

    @asynccontextmanager
    async def _alone(self, counters: Iterable[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for counter in sorted(counters):  # one order for all, so there is no deadlock
                lock = self._locks.setdefault(counter, asyncio.Lock())
                await stack.enter_async_context(lock)
            yield
