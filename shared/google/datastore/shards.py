"""What is remembered of shards, so that a blind commit needs no read and no shard can leave int64. Pure.

The server saturates without a word, and others add to the same shards. So a shard that was seen beyond ±2^62 is full,
what was seen is believed for ten minutes, and what is added on such old knowledge is at most 2^40 at once. A bigger sum
is added only to a shard of that very version, and not beyond 3 * 2^61. From there to the end of int64 are 2^21 small
commits, within ten minutes, on one shard: more than 3,000 a second.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

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
    """0 if it was not there."""
    readable: bool = False
    """Its config was there too, and told readers to look for it."""
    number: int = 0
    """What the config said when it was looked for; 0 if there was none, or nobody looked."""

    def full(self, delta: int) -> bool:
        if abs(self.held) > SHARD_FULL:
            return True
        return is_big(delta) and abs(self.held + delta) > FULL_FOR_BIG

    def settled(self) -> bool:
        """It can be updated. Otherwise it is made, and its config raised, in the same commit."""
        return self.version > 0 and self.readable


def is_big(delta: int) -> bool:
    return abs(delta) > BIG


class ShardMemory:
    """The shards that were there lately."""

    def __init__(self) -> None:
        self._standings: OrderedDict[Shard, tuple[ShardState, float]] = OrderedDict()

    def get(self, shard: Shard, now: float) -> ShardState | None:
        """None if it was not seen within ten minutes."""
        standing, at = self._standings.get(shard, (None, now))
        return standing if now - at < FRESH else None

    def note(self, shard: Shard, standing: ShardState, now: float) -> None:
        if not standing.version:  # when it is to be made, somebody has to see whether it went with a compaction
            self.forget(shard)
            return
        self._standings[shard] = (standing, now)
        self._standings.move_to_end(shard)
        if len(self._standings) > MOST_SHARDS:
            self._standings.popitem(last=False)

    def forget(self, shard: Shard) -> None:
        self._standings.pop(shard, None)
