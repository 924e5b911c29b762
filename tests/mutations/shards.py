"""Mutations of shards: how many readers look at, compactions, and growth."""

from math import inf
from typing import Any

from flusher.shards import PERIOD
from tests.mutations.mutation import LOOPS, around, calling, mutation, replaced, returning
from tests.mutations.places import COMPACTIONS, FLUSHER, GROWTH, MEMORY, SEEDS, STORE

mutation(
    "a stale shard number: readers are told of fewer shards than are written",
    "flusher.flush.commit_loop.ShardBook._add",
    *FLUSHER,
    "tests/unit/shards/test_raise_shards.py",
    LOOPS,
)(lambda add: lambda self, name, delta: add(self, name, delta)._replace(num_shards=self._new_counter))

mutation("a shard that was compacted is made anew", "shared.model.words.was_compacted", STORE, COMPACTIONS)(
    returning(False)
)

mutation("readers do not look for a shard that a file makes", "shared.sqlite.store._make", STORE)(
    lambda make: lambda db, sums, number, _: make(db, sums, number, 0)
)

mutation("readers do not look for a shard that a store in memory makes", "shared.model.words.number_for", MEMORY)(
    lambda _: lambda add, there: 0 if there else add.num_shards
)


@around("a compaction drops what the highest shards hold", "shared.model.words.moved", STORE, COMPACTIONS, SEEDS)
def _(moved: Any, counter: str, staying: Any, leaving: int) -> Any:
    return [0] * len(moved(counter, staying, leaving))


mutation("what a flusher wrote itself is taken for others'", "flusher.shards.CounterWrites.saw", GROWTH)(
    calling(SLACK=-inf)
)


@replaced("a burst is taken for a rate", "flusher.shards.CounterWrites.own", GROWTH)
def _(self: Any, now: float) -> float:
    counts = self.writes.whole(now)
    return float(sum(counts) / len(counts) / PERIOD)
