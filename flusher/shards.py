"""Decides how many shards a counter has. One rule decides that:

    shards = writes per second, by us and by others / writes per second that a shard takes
             up to twice as many, if commits keep waiting for each other though there are enough

For example, three flushers write the counter `hot` once a second each, and a shard takes one write a second:

1. Our own writes are counted in periods of five seconds. Of the last four, the emptiest decides, so a burst of 10 s,
   which touches three, is no rate. We find 1.0 a second.
2. The writes of others are seen by looking ten times, 2.5 s apart, at how long ago a shard was written. We wrote 0.7 s
   ago, and the shard was written 0.2 s ago, so somebody else wrote. After ten looks, we saw 9 such writes in 4.1 s.
   The first of them only tells that there are others, so that is 8 / 4.1 = 1.95 a second; and two standard deviations
   less, to be sure: 0.65. Among many flushers, the one that errs most would decide for all.
3. 1.0 + 0.65 is more than the 1.2 that one shard may get, so the counter gets 2 shards, and the looks begin again. The
   other flushers do the same.
4. Commits that are ABORTED or slow have met others. The commit does not say at which of its counters, so we blame the
   one whose shards are written most often. If that goes on for 20 s, for a tenth of its commits, the counter gets twice
   as many shards, but at most `SPARE` times what the rate needs: a store that is slow for everyone raises nothing more.

The number only rises here, so it can't oscillate. `CounterCooler` lowers it when nobody wrote for days.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf, sqrt
from typing import Final, NamedTuple

from shared.counters.setter import Compactor
from shared.model.errors import CrowdedError, RefusedError, TransientError, amount
from shared.model.words import ShardAdd
from shared.ports.store import ShardNumbers
from shared.runtime import metrics
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

MOST_NOT_COLD: Final = 100_000
"""Counters that are known not to be cold yet."""
MOST_WATCHED: Final = 10_000
"""Counters that are watched. Others are watched once some of these are not written any more."""
KEPT: Final = 3_600.0
"""Seconds without a write after which a counter is forgotten. Kept this long, since learning costs reads."""
PERIOD: Final = 5.0
PERIODS: Final = 4
"""Complete periods that count."""
UNEVEN: Final = 1.25
"""The average of the periods is believed up to this many times the emptiest one."""
FEWEST: Final = 3
"""Recent writes that make a counter worth a look."""
LOOKS: Final = 10
LOOKED_AT: Final = 4
MOST_ASKED_AT_ONCE: Final = 500
WRITES_FOR_A_READ: Final = 100
"""A new series of looks begins after this many writes for each read that it costs."""
MORE: Final = 10
"""It begins early if there are this many more than twice the writes of the last time."""
SLACK: Final = 0.1
"""Seconds within which the order of two writes is unknown."""
DOUBT: Final = 0.3
"""Seconds before the end of our commit in which a write that we see may be our own."""
MOST_DOUBTS: Final = 2_000
SURE: Final = 2.0
"""Use the estimate of others' writes minus this many standard deviations."""
ENOUGH: Final = 1.2
"""Shards are added only if they are written this many times as often as they can take: a flusher that writes once a
second is sometimes a little faster."""
SLOW: Final = 1.0
SLOW_EACH: Final = 0.001
"""A commit that took longer than SLOW seconds, plus SLOW_EACH for each of its sums, has waited for another writer."""
OFTEN: Final = 0.1
"""A counter gets more shards if it made this share of its commits fail or wait."""
SPARE: Final = 3.0
"""A contended counter gets at most this many times the shards that its rate needs: random choices collide."""
RATE: Final = "rate"
CONTENTION: Final = "contention"


class ShardRaise(NamedTuple):
    counter: str
    before: int
    after: int
    why: str
    own: float
    """Writes per second by this flusher."""
    others: float


class Periods(Counter[int]):
    def add_at(self, now: float) -> None:
        self[int(now / PERIOD)] += 1
        if len(self) > PERIODS + 1:
            del self[min(self)]

    def whole(self, now: float) -> list[int]:
        """The counts of the complete periods."""
        return [self[int(now / PERIOD) - back] for back in range(1, PERIODS + 1)]

    def all(self, now: float) -> int:
        return self[int(now / PERIOD)] + sum(self.whole(now))


class CounterWrites:
    def __init__(self, shards: int) -> None:
        self.last = 0.0
        """When we last wrote, or tried to."""
        self.writes = Periods()
        self.become(shards)

    def become(self, shards: int) -> None:
        """The number of shards has changed: what was seen of others' writes no longer applies."""
        self.shards = shards
        self.blames = Periods()
        """Commits that failed or took long, most likely because of this counter."""
        self._mine: dict[int, float] = {}
        """When we last wrote to each shard, since the looks began."""
        self._events = self._exposure = 0.0
        """Writes of others that were seen, and the seconds in which they were."""
        self._left = self._since = self._then = 0
        """Looks that are left in this series; our writes since it began, and those in the periods before."""
        self._begun = 0.0

    def wrote(self, shard: int, shards: int, now: float) -> None:
        """We wrote to this shard; the counter has `shards` of them."""
        if shards != self.shards:
            self.become(shards)
        self.last = now
        self.writes.add_at(now)
        self._since += 1
        self._mine[shard] = now

    def looks(self, now: float, pick: Callable[[int], int]) -> list[int]:
        """The shards to look at now."""
        number = min(self.shards, LOOKED_AT)
        if not self._left:
            recent, most = self.writes.all(now), WRITES_FOR_A_READ * LOOKS * number
            if recent < FEWEST or (self._then and self._since < most and recent < 2 * self._then + MORE):
                return []
            self._left, self._then, self._since, self._begun = LOOKS, recent, 0, now
            self._mine.clear()
            self._events /= 2  # older ones count less
            self._exposure /= 2
        if now - self._begun < PERIOD / 2:
            return []
        self._left -= 1
        first = pick(self.shards)
        return [(first + more) % self.shards for more in range(number)]

    def saw(self, shard: int, age: float | None, asked: float) -> None:
        """The shard was written `age` seconds before `asked`, by anybody; None: never."""
        since = asked - self._mine.get(shard, self._begun)
        if since <= 0 or not self._then:  # it was asked before our last write, or before the number of shards changed
            return
        if age is not None and age < since - SLACK:
            self._events += 1
            since = max(age, 0.001)
        self._exposure += since / self.shards

    def own(self, now: float) -> float:
        """Our writes per second, without short bursts."""
        counts = self.writes.whole(now)
        return min(sum(counts) / len(counts), UNEVEN * min(counts)) / PERIOD

    def others(self) -> float:
        return max(self._events - 1, 0) / self._exposure if self._events else 0.0

    def others_surely(self) -> float:
        """A cautious lower estimate of `others`; 0 until the looks have outlasted a burst."""
        return 0.0 if self._left or not self._events else self.others() * max(0.0, 1 - SURE / sqrt(self._events))

    def heat(self, now: float) -> float:
        """The approximate writes per second to each shard."""
        return (self.writes.all(now) / (PERIOD * PERIODS) + self.others()) / self.shards


class Growth:
    """What one flusher knows about the counters that it writes. Pure: time is an argument."""

    def __init__(self, writes: float, most: int, pick: Callable[[int], int] = random.randrange) -> None:
        """`writes`: writes per second that a shard takes; `most`: the most shards of a counter."""
        self._rate = writes
        self._most = most
        self._pick = pick
        self._seen: dict[str, CounterWrites] = {}
        self._answers: list[tuple[str, int, float | None, float, float]] = []
        """Answers to looks. They are judged when we know whether our commit has written the shard."""

    def tries(self) -> None:
        """Our commit begins. The one before it, if it did not end with `wrote`, has failed."""
        self._judge(frozenset(), inf)

    def _judge(self, shards: frozenset[tuple[str, int]], ours: float) -> None:
        """Use the answers. Writes of these shards at `ours` or later may be our own."""
        answers, self._answers = self._answers, []
        for counter, shard, age, at, now in answers:
            doubtful = age is not None and now - age >= ours and (counter, shard) in shards
            if counter in self._seen and not doubtful:
                self._seen[counter].saw(shard, age, at)

    def wrote(self, adds: Sequence[ShardAdd], seconds: float, now: float) -> None:
        """Our commit is done; it took this many seconds."""
        self._judge(
            frozenset([(add.counter, add.shard) for add in adds]) if self._answers else frozenset(), now - DOUBT
        )
        for counter, shard, _, shards, _ in adds:
            if counter in self._seen or len(self._seen) < MOST_WATCHED:
                self._seen.setdefault(counter, CounterWrites(shards)).wrote(shard, shards, now)
        if seconds > SLOW + SLOW_EACH * len(adds):
            self.contended(adds, now)

    def contended(self, adds: Iterable[ShardAdd], now: float) -> None:
        """Our commit collided with another writer. The store does not say at which counter: blame the one whose shards
        are written most often, among those that others write to.
        """
        tried = [writing for add in adds if (writing := self._seen.get(add.counter))]
        for writing in tried:
            writing.last = now
        if contested := [writing for writing in tried if writing.others()]:
            max(contested, key=lambda writing: writing.heat(now)).blames.add_at(now)

    def looks(self, now: float) -> Sequence[tuple[str, int]]:
        """The shards whose ages to ask for now. Called every few seconds; counters take turns."""
        asked: list[tuple[str, int]] = []
        longest = KEPT if len(self._seen) < MOST_WATCHED else PERIOD * PERIODS
        for counter, writing in [*self._seen.items()]:
            if now - writing.last > longest:
                del self._seen[counter]
            elif len(asked) < MOST_ASKED_AT_ONCE:
                asked += [(counter, shard) for shard in writing.looks(now, self._pick)]
        return asked

    def saw(
        self, asked: Iterable[tuple[str, int]], ages: Mapping[tuple[str, int], float], at: float, now: float
    ) -> None:
        """Take the answer to `looks`. It was asked for `at` that time; the store looked then or later."""
        self._answers += [(*one, ages.get(one), at, now) for one in asked]
        del self._answers[MOST_DOUBTS:]

    def due(self, now: float) -> Sequence[ShardRaise]:
        """The counters that need more shards now."""
        return [
            ShardRaise(counter, writing.shards, after, why, writing.own(now), writing.others())
            for counter, writing in self._seen.items()
            if now - writing.last <= PERIOD * (PERIODS + 1)
            for after, why in [self._wanted(writing, now)]
            if after > writing.shards
        ]

    def _wanted(self, writing: CounterWrites, now: float) -> tuple[int, str]:
        """The rule."""
        needed = (writing.own(now) + writing.others_surely()) / self._rate
        if needed > ENOUGH * writing.shards:
            return min(ceil(needed), self._most), RATE
        if all(writing.blames.whole(now)) and writing.blames.all(now) >= OFTEN * writing.writes.all(now):
            return min(2 * writing.shards, ceil(SPARE * needed), self._most), CONTENTION
        return 0, ""

    def raised(self, counter: str, number: int) -> None:
        if counter in self._seen:
            self._seen[counter].become(number)

    def most(self) -> int:
        """The largest number of shards among the watched counters."""
        return max((writing.shards for writing in self._seen.values()), default=0)


class CounterGrower:
    def __init__(self, growth: Growth, store: ShardNumbers, raised: Callable[[str, int], None], clock: Clock) -> None:
        """`raised` is told that a counter has this many shards now."""
        self._growth = growth
        self._store = store
        self._raised = raised
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
        metrics.SHARDS_OF_LARGEST.set(growth.most())
        return grown

    async def _raise(self, one: ShardRaise) -> bool:
        try:
            there = (await self._store.shards([one.counter])).get(one.counter, 0)
            if 0 < there < one.after:
                number = await self._store.raise_shards(one.counter, one.after, make=False)
            else:  # another flusher was faster, or the counter has just been removed
                number = there
        except (RefusedError, TransientError) as error:  # go on with the next counter
            _log.warning("counter %r needs more than %s: %s", one.counter, amount(one.before, "shard"), error)
            return False
        self._growth.raised(one.counter, number or one.before)
        self._raised(one.counter, number)
        if number == there:
            return False
        metrics.RAISES.labels(one.why).inc()
        _log.warning(
            "counter %r has %s, and had %d, by %s: %.1f writes a second by this flusher, %.1f by others",
            one.counter, amount(number, "shard"), there, one.why, one.own, one.others,
        )  # fmt: skip
        return True


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
            _log.warning("counter %r keeps its %s: %s", counter, amount(before, "shard"), error)
            return False
        metrics.COMPACTIONS.labels("cold").inc()
        _log.warning(
            "counter %r has %s, and had %d: nobody wrote to it for %.0f s",
            counter, amount(number, "shard"), before, youngest,
        )  # fmt: skip
        return number < before

    def _look_later(self, counter: str, seconds: float) -> None:
        if len(self._later) < MOST_NOT_COLD:
            self._later[counter] = self._clock.monotonic() + seconds
