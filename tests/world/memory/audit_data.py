"""All that a store in memory holds, for an audit."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from shared.model.buckets import Followed
from shared.model.jobs import JobState
from shared.model.words import Mark
from shared.ports.store import BucketShard, Config, Shard, Snapshot, StoredReceipt
from tests.world.memory.buckets import MemoryBuckets

PAGE: Final = 100

T = TypeVar("T")


class MemoryAuditData:
    """The data: copies of the state at one instant."""

    def __init__(
        self,
        receipts: Sequence[StoredReceipt],
        configs: Sequence[Config],
        shards: Sequence[Shard],
        buckets: MemoryBuckets,
        snapshot: Snapshot,
    ) -> None:
        self.snapshot = snapshot
        self._receipts = receipts
        self._configs = configs
        self._shards = shards
        self._buckets = buckets

    def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        return pages(self._receipts)

    def configs(self) -> AsyncIterator[Sequence[Config]]:
        return pages(self._configs)

    def shards(self) -> AsyncIterator[Sequence[Shard]]:
        return pages(self._shards)

    def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        return pages([BucketShard(bucket, held) for (bucket, _), (held, _) in self._buckets.shards.items()])

    def marks(self) -> AsyncIterator[Sequence[Mark]]:
        return pages(())

    def jobs(self) -> AsyncIterator[Sequence[JobState]]:
        return pages(())

    async def followed(self) -> Sequence[Followed]:
        return self._buckets.dates.followed


async def pages(rows: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    for begin in range(0, len(rows), PAGE):
        yield rows[begin : begin + PAGE]
