"""Remembers the counters' numbers of shards, and chooses the shard for each sum."""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

from shared.model.sharding import add_to
from shared.model.words import ShardAdd
from shared.ports.shards import ShardNumbers
from shared.runtime.clock import Clock

MOST_COUNTERS: Final = 100_000
FRESH: Final = 60.0
"""Seconds for which a number is used without a look. An old one is safe: new shards are just used later."""


class ShardBook:
    """Numbers of shards, and which shards are full."""

    def __init__(
        self, store: ShardNumbers, clock: Clock, new_counter: int, pick: Callable[[int], int] = random.randrange
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_counter = new_counter
        self._pick = pick
        self._numbers: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._full: dict[str, frozenset[int]] = {}

    async def adds(self, sums: Mapping[str, int]) -> tuple[ShardAdd, ...]:
        """For each sum, an add to a random shard of its counter that is not full."""
        now = self._clock.monotonic()
        unknown = [name for name in sums if name not in self._numbers or self._numbers[name][1] < now]
        if unknown:
            found = await self._store.shards(unknown)
            for name in unknown:
                self._note(name, found.get(name, 0), now)
        adds = tuple([self._add(name, delta) for name, delta in sums.items()])
        while len(self._numbers) > MOST_COUNTERS:
            forgotten, _ = self._numbers.popitem(last=False)
            self._full.pop(forgotten, None)
        return adds

    def full(self, shards: Iterable[tuple[str, int]]) -> None:
        """These shards are full. Look at the numbers again: others may have made new shards, and filled them, too."""
        for name, index in shards:
            self._full[name] = self._full.get(name, frozenset()) | {index}
            number, _ = self._numbers.get(name, (0, 0.0))
            self._numbers[name] = (number, -inf)

    def done(self, adds: Iterable[ShardAdd]) -> None:
        """These adds were applied, so their counters have a config now."""
        for name, _, _, num_shards, _ in adds:
            self.raised(name, num_shards)

    def raised(self, name: str, number: int) -> None:
        """The counter has at least so many shards now."""
        known, until = self._numbers.get(name, (0, 0.0))
        if known < number:
            self._numbers[name] = (number, until)

    def shrunk(self, names: Iterable[str]) -> None:
        """These counters have fewer shards than believed: forget their numbers."""
        for name in names:
            self._numbers.pop(name, None)
            self._full.pop(name, None)

    def _add(self, name: str, delta: int) -> ShardAdd:
        number = self._numbers[name][0] or self._new_counter
        return add_to(name, delta, number, new=number, full=self._full.get(name, frozenset()), pick=self._pick)

    def _note(self, name: str, number: int, now: float) -> None:
        self._numbers[name] = (number, now + FRESH)
        self._numbers.move_to_end(name)
