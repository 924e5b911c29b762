"""Stores with one mistake each about counts by time."""

from dataclasses import replace

from shared.model.buckets import ByTime, Instant, StoreMillis, WallMillis
from shared.model.errors import AlreadyAppliedError
from shared.model.words import Commit
from tests.world.memory.buckets import MemoryBuckets
from tests.world.memory.store import MemoryStore


class AddsToBucketsThoughRefused(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        try:
            return await super().apply(commit)
        except AlreadyAppliedError:
            self._buckets = self._buckets.after(commit.by_time, 0)
            raise


class AddsToNoBucket(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        rules = commit.by_time.rules if commit.by_time is not None else ()
        return await super().apply(replace(commit, by_time=ByTime((), rules)))


class TakesOneShard(MemoryStore):
    """A shard of a bucket replaces another."""

    async def apply(self, commit: Commit) -> Instant:
        if commit.by_time is None:
            return await super().apply(commit)
        adds = tuple(add._replace(shard=0) for add in commit.by_time.adds)
        return await super().apply(replace(commit, by_time=ByTime(adds, commit.by_time.rules)))


class TakesASetForAFlush(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, by_time=commit.by_time or ByTime()))


class ForgetsOtherRules(MemoryStore):
    """A commit that follows no rules leaves those of the last one."""

    async def apply(self, commit: Commit) -> Instant:
        no_rules = commit.by_time is not None and not commit.by_time.rules
        return await super().apply(replace(commit, by_time=None) if no_rules else commit)


class NeverRenews(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        before = self._buckets
        time = await super().apply(commit)
        now = self._buckets
        kept = {key: (held[0], before.shards.get(key, held)[1]) for key, held in now.shards.items()}
        self._buckets = MemoryBuckets(kept, now.dates)
        return time


class SweepsAll(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        self._buckets, gone = self._buckets.swept(StoreMillis(1 << 60), limit)
        return gone + await super().sweep(now, limit)


class ChecksNoBucket(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        kept, self._buckets = self._buckets, MemoryBuckets()
        try:
            time = await super().apply(replace(commit, by_time=None))
        finally:
            self._buckets = kept
        self._buckets = kept.after(commit.by_time, 1)
        return time


class ClosesNothing(MemoryStore):
    async def close_periods(self, until: WallMillis) -> None:
        """Too little."""


class Reopens(MemoryStore):
    async def close_periods(self, until: WallMillis) -> None:
        self._buckets = MemoryBuckets(self._buckets.shards, self._buckets.dates._replace(closed=until))


class AddsToClosedPeriods(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        closed = self._buckets.dates.closed
        self._buckets = MemoryBuckets(self._buckets.shards, self._buckets.dates._replace(closed=0))
        try:
            return await super().apply(commit)
        finally:
            await self.close_periods(closed)


class DatesTheFuture(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        self._buckets = MemoryBuckets(self._buckets.shards, self._buckets.dates._replace(latest=1 << 60))
        return await super().apply(commit)
