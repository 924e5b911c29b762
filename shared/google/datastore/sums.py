"""Adds up what a commit adds to each shard, because a request may contain each key only once. Pure."""

from collections.abc import Collection, Iterator
from typing import Final

from shared.google.datastore.shards import Shard
from shared.model.errors import AlreadyAppliedError, RefusedError
from shared.model.sharding import number_for, was_compacted
from shared.model.words import Commit, ShardAdd

_END: Final = 2**63 - 1


class Sums:
    """One sum for each shard, and how many shards each counter must have."""

    def __init__(self, commit: Commit) -> None:
        if commit.repeats():
            raise AlreadyAppliedError("this commit contains a receipt twice")
        self.shards: dict[Shard, int] = {}
        self._adds: dict[str, list[ShardAdd]] = {}
        for add in commit.adds:
            shard = (add.counter, add.shard)
            self.shards[shard] = self.shards.get(shard, 0) + add.delta
            self._adds.setdefault(add.counter, []).append(add)
        if any(abs(delta) > _END for delta in self.shards.values()):
            raise RefusedError("a sum does not fit into 64 bits")

    def counters(self) -> Collection[str]:
        return self._adds.keys()

    def shards_of(self, counter: str) -> Iterator[Shard]:
        for add in self._adds[counter]:
            yield add.counter, add.shard

    def number(self, counter: str, there: int) -> int:
        """How many shards a counter must have, if it has `there` now (0: no config) and one to add to is missing."""
        return max(max(number_for(add, there), add.shard + 1) for add in self._adds[counter])

    def shrunk(self, shard: Shard, there: int) -> bool:
        """Whether a shard that is missing was removed by a compaction."""
        counter, index = shard
        return any(add.shard == index and was_compacted(add, there) for add in self._adds[counter])
