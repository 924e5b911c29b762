"""Counts by time in memory. An object is never changed, so a snapshot is a reference."""

from collections.abc import Mapping
from typing import Final

from shared.model.buckets import ByTime, Counts, Dates, StoreMillis, TimeBucket, WallMillis
from shared.model.words import SHARD_FULL

Held = tuple[int, StoreMillis]
"""A count, and when it expires."""
_NONE: Final = Dates()


class MemoryBuckets:
    """The shards of buckets, and what is known of dates."""

    def __init__(self, shards: Mapping[tuple[TimeBucket, int], Held] | None = None, dates: Dates = _NONE) -> None:
        self.shards = shards or {}
        self.dates = dates

    def full(self, by_time: ByTime | None, wall: WallMillis) -> set[tuple[str, int]]:
        """The shards that a commit must not choose."""
        adds = self.dates.after(by_time, wall)[1] if by_time is not None else ()
        return {
            (add.bucket.counter, add.shard) for add in adds if abs(self._held(add.bucket, add.shard)[0]) > SHARD_FULL
        }

    def after(self, by_time: ByTime | None, wall: WallMillis) -> "MemoryBuckets":
        if by_time is None:
            return self
        dates, adds = self.dates.after(by_time, wall)
        if not adds:
            return MemoryBuckets(self.shards, dates)
        shards = {**self.shards}
        for bucket, shard, delta, expires in adds:
            count, until = shards.get((bucket, shard), (0, expires))
            shards[bucket, shard] = count + delta, max(until, expires)
        return MemoryBuckets(shards, dates)

    def closing(self, until: WallMillis, wall: WallMillis) -> "MemoryBuckets":
        return MemoryBuckets(self.shards, self.dates.closing(until, wall))

    def swept(self, now: StoreMillis, limit: int) -> tuple["MemoryBuckets", int]:
        gone = [key for key, (_, expires) in self.shards.items() if expires < now][: max(limit, 0)]
        left = {key: held for key, held in self.shards.items() if key not in gone} if gone else self.shards
        return MemoryBuckets(left, self.dates), len(gone)

    def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        found: dict[WallMillis, int] = {}
        for (bucket, _), (count, _) in self.shards.items():
            if bucket[:2] == (counter, by) and begin <= bucket.begin < end:
                found[bucket.begin] = found.get(bucket.begin, 0) + count
        return Counts(found, self.dates.followed, self.dates.closed)

    def _held(self, bucket: TimeBucket, shard: int) -> Held:
        return self.shards.get((bucket, shard), (0, StoreMillis(0)))
