"""Owns which counters need more shards: those that are written more often than their shards can take. Pure.

The number only ever rises, so it can't oscillate. What is needed is written down as a rate of all writers together; a
rate that does not last raises nothing.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from flusher.shards.write_rate import BUCKET, BUCKETS, Waited, Writing
from shared.model.words import ShardAdd

MOST_COUNTERS: Final = 10_000
"""Watched at once. Those that find no room are watched when some of the others are not written any more."""
KEPT: Final = 3_600.0
"""Seconds without a write for which what was learned is kept while there is room: to look again costs reads."""
MOST_LOOKED_AT: Final = 500
"""Shards in one look."""
ENOUGH: Final = 1.2
"""Times as often as they can take may shards be written before there are more of them: a flusher that writes once a
second does so a little more often now and then.
"""
SLOW: Final = 1.0
SLOW_EACH: Final = 0.001
"""Seconds, and for each sum in it, beyond which a commit has waited for somebody."""
DOUBT: Final = 0.3
"""Seconds before the end of a commit in which a write may be that of the commit. It does not wait after it is done."""
MOST_DOUBTS: Final = 2_000
OFTEN: Final = 0.1
"""Of the commits with a counter, so many that failed or waited because of it ask for more shards."""
SPARE: Final = 2.0
"""Times as many shards as the rate asks for a contended counter has at most: random choices meet."""

RATE: Final = "rate"
CONTENTION: Final = "contention"


class Raise(NamedTuple):
    """More shards for a counter, and why."""

    counter: str
    before: int
    after: int
    why: str
    own: float
    """Writes a second: ours."""
    others: float


class Growth:
    """What one flusher sees of the counters that it writes."""

    def __init__(self, writes: float, most: int, pick: Callable[[int], int] = random.randrange) -> None:
        """`writes`: how many a second a shard takes. `most` shards of a counter."""
        self._rate = writes
        self._most = most
        self._pick = pick
        self._seen: dict[str, Writing] = {}
        self._waited = Waited()
        self._under_way: frozenset[tuple[str, int]] = frozenset()
        self._doubts: list[tuple[str, int, float | None, float, float]] = []
        """Looks at shards to which a commit of ours is under way."""

    def tries(self, adds: Iterable[ShardAdd]) -> None:
        """A commit of ours begins: until it ends nobody can say whether the last write of a shard is ours."""
        self._resolve(inf)  # the one before it failed
        self._under_way = frozenset([(counter, shard) for counter, shard, *_ in adds])

    def _resolve(self, ours: float) -> None:
        """What was written from then on may be ours."""
        doubts, self._doubts = self._doubts, []
        for counter, shard, age, at, now in doubts:
            if counter in self._seen and (age is None or now - age < ours):
                self._seen[counter].saw(shard, age, at)

    def wrote(self, adds: Sequence[ShardAdd], seconds: float, now: float) -> None:
        """A commit of ours is done, and took so long."""
        self._resolve(now - DOUBT)
        self._under_way = frozenset()
        for counter, shard, _, shards, _ in adds:
            writing = self._seen.get(counter)
            if writing is None:
                if len(self._seen) >= MOST_COUNTERS:
                    continue
                writing = self._seen[counter] = Writing(shards)
            writing.wrote(shard, shards, now)
        if seconds > SLOW + SLOW_EACH * len(adds):
            self.contended(adds, seconds, now)
        self._waited.end(now)

    def contended(self, adds: Iterable[ShardAdd], seconds: float, now: float) -> None:
        """A try of ours that took so long met others, nobody says where: most likely at the shard that is written most
        often of those that others write to.
        """
        self._waited.begin(now - seconds)
        tried = [writing for add in adds if (writing := self._seen.get(add.counter))]
        for writing in tried:
            writing.last = now
        if contested := [writing for writing in tried if writing.others()]:
            max(contested, key=lambda writing: writing.heat(now)).blames.add(now)

    def looks(self, now: float) -> Sequence[tuple[str, int]]:
        """Shards whose ages are to be asked for. Called every few seconds; the counters take turns."""
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
        """What came of `looks`, asked for at that time: the store looked then, or later."""
        for counter, shard in asked:
            age = ages.get((counter, shard))
            if (counter, shard) in self._under_way:
                self._doubts.append((counter, shard, age, at, now))
            elif counter in self._seen:
                self._seen[counter].saw(shard, age, at)
        del self._doubts[MOST_DOUBTS:]

    def due(self, now: float) -> Sequence[Raise]:
        """Counters that need more shards than they have."""
        written = [(name, one) for name, one in self._seen.items() if now - one.last <= BUCKET * (BUCKETS + 1)]
        wanted = [(counter, writing, *self._wanted(writing, now)) for counter, writing in written]
        return [
            Raise(counter, writing.shards, after, why, writing.own(now), writing.others())
            for counter, writing, after, why in wanted
            if after > writing.shards
        ]

    def _wanted(self, writing: Writing, now: float) -> tuple[int, str]:
        own = writing.own(now)
        surely = own + writing.others_surely()  # of many flushers the one that errs most would decide for all
        if surely > ENOUGH * self._rate * writing.shards:
            return min(ceil(surely / self._rate), self._most), RATE
        if all(writing.blames.whole(now)) and writing.blames.all(now) >= OFTEN * writing.writes.all(now):
            waiting = ceil(surely * self._waited.factor(now) / self._rate)  # others wait as we do
            spare = min(2 * writing.shards, ceil(SPARE * surely / self._rate))
            return min(max(waiting, spare), self._most), CONTENTION
        return 0, ""

    def raised(self, counter: str, number: int) -> None:
        """It has so many now."""
        if counter in self._seen:
            self._seen[counter].become(number)

    def most(self) -> int:
        """Shards of the counter that has most of those it watches."""
        return max((writing.shards for writing in self._seen.values()), default=0)
