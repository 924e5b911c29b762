"""Chooses the shard for a sum, and names shards."""

from collections.abc import Callable, Sequence
from itertools import count

from shared.model.words import SHARD_FULL, ShardAdd


def shard_key(counter: str, index: int) -> str:
    """The key name of a shard, as in Google's published model."""
    return f"shard-{counter}-{index}"


def choose(num_shards: int, full: frozenset[int], pick: Callable[[int], int]) -> int:
    """A random shard that is not full. If all are full it is the first behind them: others may have filled new ones."""
    if not full:
        return pick(num_shards) if num_shards > 1 else 0
    free = [index for index in range(num_shards) if index not in full]
    return free[pick(len(free))] if free else next(index for index in count(num_shards) if index not in full)


def add_to(
    counter: str, delta: int, known: int, *, new: int, full: frozenset[int], pick: Callable[[int], int]
) -> ShardAdd:
    """An add to a random shard that is not full. `known`: the counter's number of shards, or 0; it gets `new` then."""
    number = known or new
    shard = choose(number, full, pick)
    return ShardAdd(counter, shard, delta, max(number, shard + 1), known)


def was_compacted(add: ShardAdd, there: int) -> bool:
    """Whether a missing shard was removed by a compaction to `there` shards. If so it is not created again.

    `there` is 0 if there is no config: then all shards may be created.
    """
    return 0 < there <= add.shard < add.known


def number_for(add: ShardAdd, there: int) -> int:
    """The least number of shards that the counter must have when this add creates its shard; it has `there` now.

    It is not the number that was known before: the counter may have been compacted since.
    """
    return add.shard + 1 if there and add.known else add.num_shards


def moved(staying: Sequence[int], leaving: int) -> list[int] | None:
    """How much of the sum of the leaving shards each staying shard gets. The first takes as much as it can.

    None if they can't hold all of it. A part may be beyond int64, where a shard is far on the other side of zero; what
    the shard holds with it never is.
    """
    given = []
    for held in staying:
        end = SHARD_FULL if leaving > 0 else -SHARD_FULL
        room = end - held
        part = 0 if (room > 0) != (leaving > 0) else min(room, leaving, key=abs)
        given.append(part)
        leaving -= part
    return None if leaving else given
