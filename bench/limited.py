"""A store in memory whose entities take only so many writes: what Google says of its own, and no emulator shows."""

import asyncio
from typing import Final

from shared.model.buckets import Instant
from shared.model.errors import ContendedError
from shared.model.words import Commit
from shared.runtime.clock import Clock
from tests.world.memory.store import MemoryStore

HOLDS: Final = 1.0
"""Seconds for which a write keeps an entity from the next one: once a second is the guidance."""
TAKES: Final = 0.03
"""Seconds of a commit that waits for nobody."""
PATIENCE: Final = 2.0
"""Seconds after which a commit that waits for an entity is ABORTED."""


class LimitedStore(MemoryStore):
    """Writers of one entity stand in line."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._free: dict[tuple[str, int], float] = {}

    async def apply(self, commit: Commit) -> Instant:
        now = self._clock.monotonic()
        shards = [(add.counter, add.shard) for add in commit.adds]
        turn = max(now, *(self._free.get(shard, now) for shard in shards))
        if turn - now > PATIENCE:
            await asyncio.sleep(PATIENCE)
            raise ContendedError("too much contention on these entities")
        for shard in shards:
            self._free[shard] = turn + HOLDS
        await asyncio.sleep(turn - now + TAKES)
        return await super().apply(commit)
