"""Decides which counters need more shards: those that are written more often than their shards can take. Pure.

Over which time it looks is in `write_rate.py`.

The number only rises here, so it can't oscillate. It follows from the write rate of all flushers together; a burst that
does not last raises nothing.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from flusher.shards.write_rate import BUCKET, BUCKETS, CollisionShare, CounterWrites
from shared.model.words import ShardAdd

MOST_COUNTERS: Final = 10_000
"""Counters that are watched. Others are watched once some of these are not written any more."""
KEPT: Final = 3_600.0
"""Seconds without a write after which a counter is forgotten. Kept this long, since learning costs reads."""
MOST_LOOKED_AT: Final = 500
"""Shards in one look at most."""
ENOUGH: Final = 1.2
"""Shards are added only if they are written this many times as often as they can take: a flusher that writes once a
second is sometimes a little faster.
"""
SLOW: Final = 1.0
SLOW_EACH: Final = 0.001
"""A commit that took longer than SLOW seconds, plus SLOW_EACH for each of its sums, has waited for another writer."""
DOUBT: Final = 0.3
"""Seconds before the end of our commit in which a write that we see may be our own."""
MOST_DOUBTS: Final = 2_000
OFTEN: Final = 0.1
"""A counter gets more shards if it made this share of its commits fail or wait."""
SPARE: Final = 2.0
"""A contended counter gets at most this many times the shards that its rate needs: random choices collide."""

RATE: Final = "rate"
CONTENTION: Final = "contention"


class ShardRaise(NamedTuple):
    """More shards for a counter, and why."""

    counter: str
    before: int
    after: int
    why: str
    own: float
    """Writes per second by this flusher."""
    others: float


class Growth:
    """What one flusher knows about the counters that it writes."""

    def __init__(self, writes: float, most: int, pick: Callable[[int], int] = random.randrange) -> None:
        """`writes`: writes per second that a shard takes; `most`: the most shards of a counter."""
        self._rate = writes
        self._most = most
        self._pick = pick
        self._seen: dict[str, CounterWrites] = {}
        self._waited = CollisionShare()
        self._under_way: frozenset[tuple[str, int]] = frozenset()
        self._doubts: list[tuple[str, int, float | None, float, float]] = []
        """Looks at shards to which we were just committing."""

    def tries(self, adds: Iterable[ShardAdd]) -> None:
        """Our commit begins. Until it ends, the last write of these shards may be ours."""
        self._resolve(inf)  # the commit before this one failed
        self._under_way = frozenset([(counter, shard) for counter, shard, *_ in adds])

    def _resolve(self, ours: float) -> None:
        """Use the doubtful looks. Writes at `ours` or later may be our own."""
        doubts, self._doubts = self._doubts, []
        for counter, shard, age, at, now in doubts:
            if counter in self._seen and (age is None or now - age < ours):
                self._seen[counter].saw(shard, age, at)

    def wrote(self, adds: Sequence[ShardAdd], seconds: float, now: float) -> None:
        """Our commit is done; it took so many seconds."""
        self._resolve(now - DOUBT)
        self._under_way = frozenset()
        for counter, shard, _, shards, _ in adds:
            writing = self._seen.get(counter)
            if writing is None:
                if len(self._seen) >= MOST_COUNTERS:
                    continue
                writing = self._seen[counter] = CounterWrites(shards)
            writing.wrote(shard, shards, now)
        if seconds > SLOW + SLOW_EACH * len(adds):
            self.contended(adds, seconds, now)
        self._waited.end(now)

    def contended(self, adds: Iterable[ShardAdd], seconds: float, now: float) -> None:
        """Our commit, which took so long, collided with another writer. The store does not say at which counter: blame
        the one whose shards are written most often, among those that others write to.
        """
        self._waited.begin(now - seconds)
        tried = [writing for add in adds if (writing := self._seen.get(add.counter))]
        for writing in tried:
            writing.last = now
        if contested := [writing for writing in tried if writing.others()]:
            max(contested, key=lambda writing: writing.heat(now)).blames.add(now)

    def looks(self, now: float) -> Sequence[tuple[str, int]]:
        """The shards whose ages to ask for now. Called every few seconds; counters take turns."""
        asked: list[tuple[str, int]] = []
        longest = KEPT if len(self._seen) < MOST_COUNTERS else BUCKET * BUCKETS
        for counter, writing in [*self._seen.items()]:
            if now - writing.last > longest:
                del self._seen[counter]
            elif len(asked) < MOST_LOOKED_AT and (shards := writing.looks(now, self._pick)):
                asked += [(counter, shard) for shard in shards]
        return asked

    def saw(
        self, asked: Iterable[tuple[str, int]], ages: Mapping[tuple[str, int], float], at: float, now: float
    ) -> None:
        """Take the answer to `looks`. It was asked for `at` that time; the store looked then or later."""
        for counter, shard in asked:
            age = ages.get((counter, shard))
            if (counter, shard) in self._under_way:
                self._doubts.append((counter, shard, age, at, now))
            elif counter in self._seen:
                self._seen[counter].saw(shard, age, at)
        del self._doubts[MOST_DOUBTS:]

    def due(self, now: float) -> Sequence[ShardRaise]:
        """The counters that need more shards now."""
        written = [(name, one) for name, one in self._seen.items() if now - one.last <= BUCKET * (BUCKETS + 1)]
        wanted = [(counter, writing, *self._wanted(writing, now)) for counter, writing in written]
        return [
            ShardRaise(counter, writing.shards, after, why, writing.own(now), writing.others())
            for counter, writing, after, why in wanted
            if after > writing.shards
        ]

    def _wanted(self, writing: CounterWrites, now: float) -> tuple[int, str]:
        own = writing.own(now)
        surely = (
            own + writing.others_surely()
        )  # a cautious estimate: among many flushers the one that errs most would decide for all
        if surely > ENOUGH * self._rate * writing.shards:
            return min(ceil(surely / self._rate), self._most), RATE
        if all(writing.blames.whole(now)) and writing.blames.all(now) >= OFTEN * writing.writes.all(now):
            waiting = ceil(surely * self._waited.factor(now) / self._rate)  # other flushers wait as much as we do
            spare = min(2 * writing.shards, ceil(SPARE * surely / self._rate))
            return min(max(waiting, spare), self._most), CONTENTION
        return 0, ""

    def raised(self, counter: str, number: int) -> None:
        """The counter has so many shards now."""
        if counter in self._seen:
            self._seen[counter].become(number)

    def most(self) -> int:
        """The largest number of shards among the watched counters."""
        return max((writing.shards for writing in self._seen.values()), default=0)
