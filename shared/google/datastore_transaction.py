"""Applying a commit by reading, adding and writing in a transaction: the original algorithm, receipts added."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

from shared.backoff import Backoff
from shared.errors import ShardFullError
from shared.google.datastore_client import DatastoreClient
from shared.google.datastore_errors import ContendedError
from shared.google.datastore_keys import COUNT, NUM_SHARDS, Place, integer, name_of
from shared.google.datastore_shards import Shard
from shared.google.datastore_sums import Sums
from shared.words import SHARD_FULL, Commit

_TRIES: Final = 10
_END: Final = 2**63 - 1


class TransactionWay:
    """For servers without property transforms: the older emulator would wipe the entity."""

    def __init__(self, client: DatastoreClient, place: Place) -> None:
        self._client = client
        self._place = place
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ending: set[asyncio.Task[None]] = set()

    async def apply(self, commit: Commit) -> int:
        sums = Sums(commit)

        async def work(transaction: bytes) -> Any:
            request = self._client.commit_request(transaction)
            await self._add(request, sums, transaction)
            for receipt in commit.receipts:
                request.mutations.add().insert.CopyFrom(self._place.receipt_entity(receipt))
            return request

        response = await self._run(sums.numbers, work)
        # What wasn't changed (0 added) has an old version. Receipts are always new.
        return max((result.version for result in response.mutation_results), default=0)

    async def raise_shards(self, counter: str, num_shards: int) -> int:
        number = num_shards

        async def work(transaction: bytes) -> Any:
            nonlocal number
            key = self._place.config(counter)
            found = (await self._client.look_up([key], transaction=transaction)).entities
            number = max([num_shards, *(integer(one.entity, NUM_SHARDS) for one in found)])
            request = self._client.commit_request(transaction)
            self._put(request, key, found[0].entity if found else None, NUM_SHARDS, number)
            return request

        await self._run([counter], work)
        return number

    async def _add(self, request: Any, sums: Sums, transaction: bytes) -> None:
        keys = {shard: self._place.shard(*shard) for shard in sums.shards}
        found = await self._read(keys.values(), transaction)
        full: list[Shard] = []
        for shard, key in keys.items():
            entity = found.get(name_of(key))
            count = integer(entity, COUNT) if entity else 0
            total = count + sums.shards[shard]
            if abs(count) > SHARD_FULL or abs(total) > _END:
                full.append(shard)
            else:
                self._put(request, key, entity, COUNT, total)
        if full:
            raise ShardFullError(full)
        absent = {shard[0] for shard, key in keys.items() if name_of(key) not in found}
        configs = {counter: self._place.config(counter) for counter in absent}
        found = await self._read(configs.values(), transaction)
        for counter, key in configs.items():
            entity = found.get(name_of(key))
            if entity is None or integer(entity, NUM_SHARDS) < sums.numbers[counter]:
                self._put(request, key, entity, NUM_SHARDS, sums.numbers[counter])

    async def _read(self, keys: Iterable[Any], transaction: bytes) -> dict[tuple[str, str], Any]:
        found = (await self._client.look_up(keys, transaction=transaction)).entities
        return {name_of(one.entity.key): one.entity for one in found}

    def _put(self, request: Any, key: Any, entity: Any, name: str, value: int) -> None:
        """Whatever else an entity has is kept."""
        upsert = request.mutations.add().upsert
        if entity is None:
            upsert.key.CopyFrom(key)
        else:
            upsert.CopyFrom(entity)
        upsert.properties[name].integer_value = value

    async def _run(self, counters: Iterable[str], work: Callable[[bytes], Awaitable[Any]]) -> Any:
        """Again when others were first. Within this process nobody is: who would lose anyway waits instead."""
        backoff = Backoff(0.01, 0.5)
        async with self._alone(counters):
            for _ in range(_TRIES - 1):
                try:
                    return await self._once(work)
                except ContendedError:
                    await backoff.wait()
            return await self._once(work)

    async def _once(self, work: Callable[[bytes], Awaitable[Any]]) -> Any:
        transaction = await self._client.begin()
        try:
            return await self._client.commit(await work(transaction))
        except BaseException as error:
            ending = asyncio.create_task(self._client.roll_back(transaction), name="rollback")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            if isinstance(error, Exception):  # who was cancelled does not wait for a server that may be away
                await ending
            raise

    @asynccontextmanager
    async def _alone(self, counters: Iterable[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for counter in sorted(counters):  # one order for all, so that nobody waits in a circle
                lock = self._locks.setdefault(counter, asyncio.Lock())
                await stack.enter_async_context(lock)
            yield
