"""Which shard takes a sum, and what shards are called."""

from collections.abc import Callable, Sequence

from shared.model.words import SHARD_FULL, ShardAdd


def shard_key(counter: str, index: int) -> str:
    """The key name of Google's published model."""
    return f"shard-{counter}-{index}"


def choose(num_shards: int, full: frozenset[int], pick: Callable[[int], int]) -> int:
    """A random shard that is not full; `num_shards`, that is a new one, when all are."""
    if not full:
        return pick(num_shards)
    free = [index for index in range(num_shards) if index not in full]
    return free[pick(len(free))] if free else num_shards


def went(add: ShardAdd, there: int) -> bool:
    """Whether its shard, which is not there, is one of those that went when the counter was compacted: it has `there`
    by now (0: no config, and all may be made). It is not made anew.
    """
    return 0 < there <= add.shard < add.known


def number_for(add: ShardAdd, there: int) -> int:
    """How many shards the counter must have at least, if the add makes its shard where there are so many: not as many
    as there were, since it may be compacted until then.
    """
    return add.shard + 1 if there and add.known else add.num_shards


def moved(staying: Sequence[int], leaving: int) -> list[int] | None:
    """What each of the shards that stay is given of the sum of those that leave, the first as much as it can take.
    None if they can't take all of it.
    """
    given = []
    for held in staying:
        end = SHARD_FULL if leaving > 0 else -SHARD_FULL
        room = end - held
        part = 0 if (room > 0) != (leaving > 0) else min(room, leaving, key=abs)
        given.append(part)
        leaving -= part
    return None if leaving else given
