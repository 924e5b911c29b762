"""Remembers shards, so that a blind commit needs no read, and no shard leaves the range of 64 bits. Pure.

The server saturates silently, and other processes add to the same shards. So a shard that was seen beyond ±2^62 counts
as full. What was seen is trusted for ten minutes, and a commit that relies on it adds at most 2^40. A bigger sum is
added only over the version that was just read, and not beyond 3 * 2^61. From there, a shard overflows only after 2^21
small commits within ten minutes: more than 3,000 a second.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from shared.model.times import Monotonic
from shared.model.words import SHARD_FULL

BIG: Final = 2**40
FULL_FOR_BIG: Final = 3 * 2**61
FRESH: Final = 600.0
MOST_SHARDS: Final = 200_000

Shard = tuple[str, int]
"""Counter and index."""


class ShardState(NamedTuple):
    """A shard as it was when it was seen last."""

    held: int = 0
    version: int = 0
    """0 if the shard did not exist."""
    readable: bool = False
    """Whether its config existed and covered it, so that readers look for it."""
    number: int = 0
    """The number of shards in its config; 0 if there was none, or if it was not looked up."""

    def full(self, delta: int) -> bool:
        if abs(self.held) > SHARD_FULL:
            return True
        return is_big(delta) and abs(self.held + delta) > FULL_FOR_BIG

    def settled(self) -> bool:
        """Whether an update is enough. Otherwise the commit makes the shard and raises its config."""
        return self.version > 0 and self.readable


def is_big(delta: int) -> bool:
    return abs(delta) > BIG


class ShardMemory:
    """The shards that were seen lately."""

    def __init__(self) -> None:
        self._standings: OrderedDict[Shard, tuple[ShardState, float]] = OrderedDict()

    def get(self, shard: Shard, now: Monotonic) -> ShardState | None:
        """None if it was not seen within ten minutes."""
        standing, at = self._standings.get(shard, (None, now))
        return standing if now - at < FRESH else None

    def note(self, shard: Shard, standing: ShardState, now: Monotonic) -> None:
        if not standing.version:  # before it is made, a look has to tell whether a compaction removed it
            self.forget(shard)
            return
        self._standings[shard] = (standing, now)
        self._standings.move_to_end(shard)
        if len(self._standings) > MOST_SHARDS:
            self._standings.popitem(last=False)

    def forget(self, shard: Shard) -> None:
        self._standings.pop(shard, None)
