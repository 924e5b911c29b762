"""Which shard takes a sum, and what shards are called."""

from collections.abc import Callable


def shard_key(counter: str, index: int) -> str:
    """The key name of Google's published model."""
    return f"shard-{counter}-{index}"


def choose(num_shards: int, full: frozenset[int], pick: Callable[[int], int]) -> int:
    """A random shard that is not full; `num_shards`, that is a new one, when all are."""
    if not full:
        return pick(num_shards)
    free = [index for index in range(num_shards) if index not in full]
    return free[pick(len(free))] if free else num_shards
