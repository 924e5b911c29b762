"""Stores whose data are not right, each by one mistake."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice

from shared.model.buckets import Instant, StoreMillis
from shared.model.words import Commit
from shared.ports.store import BucketShard, Config, Shard, StoredReceipt
from tests.world.memory.audit_data import MemoryAuditData
from tests.world.memory.buckets import MemoryBuckets
from tests.world.memory.store import MemoryStore


class ForgetsNotes(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, receipts=tuple(one._replace(note=b"") for one in commit.receipts)))


class CutsLongNotes(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        cut = tuple(one._replace(note=one.note[:60_000]) for one in commit.receipts)
        return await super().apply(replace(commit, receipts=cut))


class CarriesNothing(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        carried, swept = self._carried, await super().sweep(now, limit)
        self._carried = carried
        return swept


class CarriesInInt64(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        swept = await super().sweep(now, limit)
        self._carried = {name: (held + 2**63) % 2**64 - 2**63 for name, held in self._carried.items()}
        return swept


class _Changed(MemoryStore):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        raise NotImplementedError

    @asynccontextmanager
    async def audit_data(self) -> AsyncIterator[MemoryAuditData]:
        async with super().audit_data() as data:
            yield self.change(data)


class ShowsOnePage(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(data._receipts[:500], data._configs, data._shards, data._buckets)


class ShowsSomeTwice(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(
            [*data._receipts[:500], *data._receipts[499:]], data._configs, data._shards, data._buckets
        )


class ShowsReceiptsInAnyOrder(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(data._receipts[::-1], data._configs, data._shards, data._buckets)


class HidesConfigsWithoutShards(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        there = {shard.counter for shard in data._shards}
        configs = [one for one in data._configs if one.counter in there]
        return MemoryAuditData(data._receipts, configs, data._shards, data._buckets)


class HidesHighShards(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(
            data._receipts, data._configs, [one for one in data._shards if one.number < 5], data._buckets
        )


class DatesReceiptsAlike(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(
            [one._replace(time=self._time) for one in data._receipts], data._configs, data._shards, data._buckets
        )


class HidesSomeBuckets(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        some = dict(islice(data._buckets.shards.items(), 100))
        return MemoryAuditData(data._receipts, data._configs, data._shards, MemoryBuckets(some, data._buckets.dates))


class ShowsFirstShardsOfBuckets(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        first = {key: held for key, held in data._buckets.shards.items() if key[1] == 0}
        return MemoryAuditData(data._receipts, data._configs, data._shards, MemoryBuckets(first, data._buckets.dates))


class ForgetsWhatWasFollowed(_Changed):
    def change(self, data: MemoryAuditData) -> MemoryAuditData:
        return MemoryAuditData(data._receipts, data._configs, data._shards, MemoryBuckets(data._buckets.shards))


class TearsBooks(MemoryStore):
    """Each kind as it is when it is its turn."""

    @asynccontextmanager
    async def audit_data(self) -> AsyncIterator[MemoryAuditData]:
        yield _Torn(self)


class _Torn(MemoryAuditData):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        async with MemoryStore.audit_data(self._store) as now:
            yield now._receipts

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        async with MemoryStore.audit_data(self._store) as now:
            yield now._configs

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async with MemoryStore.audit_data(self._store) as now:
            yield now._shards

    async def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        async with MemoryStore.audit_data(self._store) as now:
            async for page in now.buckets():
                yield page
