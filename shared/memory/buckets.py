"""Counts by time in memory. An object is never changed, so a snapshot is a reference."""

from collections.abc import Mapping, Sequence

from shared.model.buckets import ByTime, Counts, Followed, TimeBucket, followed_after
from shared.model.times import StoreMillis, WallMillis
from shared.model.words import SHARD_FULL

Held = tuple[int, StoreMillis]
"""A count, and when it expires."""


class MemoryBuckets:
    """The shards of buckets, and which rules were followed until when."""

    def __init__(
        self,
        shards: Mapping[tuple[TimeBucket, int], Held] | None = None,
        followed: Sequence[Followed] = (),
    ) -> None:
        self.shards = shards or {}
        self.followed = followed

    def full(self, by_time: ByTime | None) -> set[tuple[str, int]]:
        """The shards that a commit must not choose."""
        adds = by_time.adds if by_time is not None else ()
        return {
            (add.bucket.counter, add.shard) for add in adds if abs(self._held(add.bucket, add.shard)[0]) > SHARD_FULL
        }

    def after(self, by_time: ByTime | None, wall: WallMillis) -> "MemoryBuckets":
        if by_time is None:
            return self
        followed = followed_after(self.followed, by_time.rules, wall)
        if not by_time.adds and followed is self.followed:
            return self
        shards = {**self.shards}
        for bucket, shard, delta, expires in by_time.adds:
            count, until = shards.get((bucket, shard), (0, expires))
            shards[bucket, shard] = count + delta, max(until, expires)
        return MemoryBuckets(shards, followed)

    def swept(self, now: StoreMillis, limit: int) -> tuple["MemoryBuckets", int]:
        gone = [key for key, (_, expires) in self.shards.items() if expires < now][: max(limit, 0)]
        left = {key: held for key, held in self.shards.items() if key not in gone} if gone else self.shards
        return MemoryBuckets(left, self.followed), len(gone)

    def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        found: dict[WallMillis, int] = {}
        for (bucket, _), (count, _) in self.shards.items():
            if bucket[:2] == (counter, by) and begin <= bucket.begin < end:
                found[bucket.begin] = found.get(bucket.begin, 0) + count
        return Counts(found, self.followed)

    def _held(self, bucket: TimeBucket, shard: int) -> Held:
        return self.shards.get((bucket, shard), (0, StoreMillis(0)))
