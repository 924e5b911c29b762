"""Compacts counters that grew and that nobody has written to for long."""

import logging
from typing import Final

from shared.counters.compaction import Compactor
from shared.model.errors import CrowdedError, RefusedError, TransientError
from shared.ports.shards import ShardNumbers
from shared.runtime import metrics
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

MOST: Final = 100_000
"""Counters that are remembered. The others are looked at in every round."""


class CounterCooler:
    """Looks again at a counter that is not cold yet when it may be."""

    def __init__(self, store: ShardNumbers, compactor: Compactor, clock: Clock, first: int, cold: float) -> None:
        """`first`: the number of shards to go back to; `cold`: seconds without a write."""
        self._store = store
        self._compactor = compactor
        self._clock = clock
        self._first = first
        self._cold = cold
        self._later: dict[str, float] = {}

    async def cool_once(self) -> int:
        """One round over all grown counters. Returns how many have fewer shards now."""
        now = self._clock.monotonic()
        self._later = {counter: due for counter, due in self._later.items() if due > now}
        cooled = 0
        async for page in self._store.grown(self._first):
            cooled += sum([await self._cool(counter) for counter in page])
        return cooled

    async def _cool(self, counter: str) -> bool:
        if counter in self._later:
            return False
        before = (await self._store.shards([counter])).get(counter, 0)
        ages = await self._store.ages([(counter, shard) for shard in range(before)])
        youngest = min(ages.values(), default=0.0)  # without an age nothing is known
        if youngest < self._cold:
            self._look_later(counter, self._cold - youngest)
            return False
        try:
            number = await self._compactor.compact(counter, self._first)
        except (CrowdedError, RefusedError, TransientError) as error:
            self._look_later(counter, self._cold)
            _log.warning("counter %r keeps its %d shards: %s", counter, before, error)
            return False
        metrics.COMPACTIONS.labels("cold").inc()
        _log.warning(
            "counter %r has %d shards, and had %d: nobody wrote to it for %.0f s", counter, number, before, youngest
        )
        return number < before

    def _look_later(self, counter: str, seconds: float) -> None:
        if len(self._later) < MOST:
            self._later[counter] = self._clock.monotonic() + seconds
