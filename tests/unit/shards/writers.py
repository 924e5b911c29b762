"""Flushers, and others, that write to one counter in virtual time, and what their growth makes of it."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random

from flusher.flush.flusher import GROWTH_INTERVAL
from flusher.shards import Growth, ShardRaise
from shared.model.words import ShardAdd

BOOK = 60.0
"""Seconds for which a flusher believes in a number."""
TOOK = 0.03
"""Seconds of a commit."""


@dataclass
class Fleet:
    """`writers` flushers, each of which writes every `interval` seconds from `begin` to `end`; and others `by_others`
    times a second, who always know how many shards there are.
    """

    seed: int
    writers: int = 1
    interval: float = 1.0
    irregular: bool = False
    begin: float = 0.0
    end: float = 1e9
    by_others: float = 0.0
    shards: int = 1
    took: Callable[[int], float] = lambda _: TOOK
    """Seconds of a commit, by the number of shards."""
    raises: list[tuple[float, ShardRaise]] = field(default_factory=list)
    reads: int = 0
    writes: int = 0

    def run(self, seconds: float) -> "Fleet":
        self._random = Random(self.seed)
        self._growths = [Growth(1.0, 100, self._random.randrange) for _ in range(self.writers)]
        self._known = [(self.shards, self._random.random() * BOOK) for _ in range(self.writers)]
        self._written: dict[int, float] = {}
        order = count()
        events: list[tuple[float, int, Callable[[int, float], float], int]] = []
        for writer in range(self.writers):
            first = self._random.random()
            heapq.heappush(events, (self.begin + first * self.interval, next(order), self._write, writer))
            heapq.heappush(events, (first * GROWTH_INTERVAL, next(order), self._grow, writer))
        if self.by_others:
            heapq.heappush(events, (0.0, next(order), self._others, 0))
        while events[0][0] < seconds:
            now, _, step, writer = heapq.heappop(events)
            heapq.heappush(events, (now + step(writer, now), next(order), step, writer))
        return self

    def _write(self, writer: int, now: float) -> float:
        if now > self.end:
            return 1e9
        known, until = self._known[writer]
        if now > until:
            known = self.shards
            self._known[writer] = known, now + BOOK
        shard, took = self._random.randrange(known), self.took(self.shards)
        self._written[shard] = now
        self.writes += 1
        self._growths[writer].tries()
        self._growths[writer].wrote([ShardAdd("a", shard, 1, known, known)], took, now + TOOK)
        if self.irregular:
            return self._random.expovariate(1 / self.interval)
        return max(took, self.interval * self._random.uniform(0.95, 1.05))

    def _others(self, _: int, now: float) -> float:
        self._written[self._random.randrange(self.shards)] = now
        return self._random.expovariate(self.by_others)

    def _grow(self, writer: int, now: float) -> float:
        growth = self._growths[writer]
        asked = growth.looks(now)
        self.reads += len(asked)
        ages = {(name, shard): now - self._written[shard] for name, shard in asked if shard in self._written}
        growth.saw(asked, ages, now, now)
        for one in growth.due(now):
            self.raises.append((now, one))
            self.shards = max(self.shards, one.after)
            self._known[writer] = self.shards, now + BOOK
            growth.raised("a", self.shards)
        return GROWTH_INTERVAL


def slow_and_alone(seed: int, latency: float, seconds: float) -> Sequence[ShardRaise]:
    """What a single flusher raises that writes once a second. Each of its questions takes the store about so long: half
    of the time it is on its way there, half on its way back.
    """
    chance = Random(seed)
    growth = Growth(1.0, 100, chance.randrange)
    order = count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    add = [ShardAdd("a", 0, 1, 1, 1)]
    written = -inf
    raises: list[ShardRaise] = []

    def at(now: float, step: Callable[[float], None]) -> None:
        heapq.heappush(events, (now, next(order), step))

    def flush(begun: float) -> None:
        took = latency * chance.uniform(0.7, 1.3)
        growth.tries()

        def applied(now: float) -> None:
            nonlocal written
            written = now

        def done(now: float) -> None:
            growth.wrote(add, took, now)
            at(max(begun + 1, now + 0.01), flush)

        at(begun + took / 2, applied)
        at(begun + took, done)

    def grow(begun: float) -> None:
        took = latency * chance.uniform(0.7, 1.3)
        asked = growth.looks(begun)
        ages: dict[tuple[str, int], float] = {}

        def looked(now: float) -> None:
            ages.update(dict.fromkeys(asked, now - written))

        def done(now: float) -> None:
            growth.saw(asked, ages, begun, now)
            raises.extend(growth.due(now))
            at(now + GROWTH_INTERVAL, grow)

        at(begun + took / 2, looked)
        at(begun + took, done)

    at(chance.random(), flush)
    at(chance.random() * GROWTH_INTERVAL, grow)
    while events[0][0] < seconds:
        now, _, step = heapq.heappop(events)
        step(now)
    return raises
