"""Grows counters: asks the store what others write, and raises the number of shards where it is too low."""

import logging

from flusher.shards.shard_choice import ShardBook
from flusher.shards.shards_needed import Growth, ShardRaise
from shared.model.errors import RefusedError, TransientError
from shared.ports.shards import ShardNumbers
from shared.runtime import metrics
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)


class CounterGrower:
    """Takes one step every few seconds."""

    def __init__(self, growth: Growth, store: ShardNumbers, book: ShardBook, clock: Clock) -> None:
        self._growth = growth
        self._store = store
        self._book = book
        self._clock = clock

    async def grow_once(self) -> int:
        """One step. Returns how many counters have more shards now."""
        growth = self._growth
        at = self._clock.monotonic()
        if asked := growth.looks(at):
            ages = await self._store.ages(asked)
            growth.saw(asked, ages, at, self._clock.monotonic())
        due = growth.due(self._clock.monotonic())
        grown = sum([await self._raise(one) for one in due])
        metrics.MOST_SHARDS.set(growth.most())
        return grown

    async def _raise(self, one: ShardRaise) -> bool:
        try:
            there = (await self._store.shards([one.counter])).get(one.counter, 0)
            if 0 < there < one.after:
                number = await self._store.raise_shards(one.counter, one.after, make=False)
            else:  # another flusher was faster, or the counter has just been removed
                number = there
        except (RefusedError, TransientError) as error:  # go on with the next counter
            _log.warning("counter %r needs more than %d shards: %s", one.counter, one.before, error)
            return False
        self._growth.raised(one.counter, number or one.before)
        self._book.raised(one.counter, number)
        if number == there:
            return False
        metrics.RAISES.labels(one.why).inc()
        _log.warning(
            "counter %r has %d shards, and had %d, by %s: %.1f writes a second by this flusher, %.1f by others",
            one.counter, number, there, one.why, one.own, one.others,
        )  # fmt: skip
        return True
