"""Estimates how often one counter is written: by this flusher, and, from occasional looks, by others. Pure.

A look asks how long ago some shards were written. A write after our own last one is somebody else's. The number of such
writes, divided by the time that the looks covered, is the rate of others. A flusher that writes alone never sees any.
"""

from collections import deque
from collections.abc import Callable
from math import sqrt
from typing import Final

BUCKET: Final = 5.0
BUCKETS: Final = 4
"""Complete buckets that count. A burst of 10 s touches three of them at most, so one is free of it."""
UNEVEN: Final = 1.25
"""The average of the buckets is believed up to this many times the emptiest bucket."""
LOOKS: Final = 10
LOOKED_AT: Final = 4
"""Shards of one counter in one look at most."""
SLACK: Final = 0.1
"""Seconds within which the order of two writes is unknown."""
SURE: Final = 2.0
"""Use the estimate of others' writes minus this many standard deviations."""
WRITES_FOR_A_READ: Final = 100
MORE: Final = 10
"""Look again early if there are this many more than twice the writes of the last time."""
MOST_FACTOR: Final = 4.0
"""The most by which waiting can raise the estimated demand."""
FEWEST: Final = 3
"""Recent writes that make a counter worth a look."""


class Buckets:
    """Counts events of the last seconds."""

    __slots__ = ("_counts", "_last")

    def __init__(self) -> None:
        self._counts = [0] * (BUCKETS + 1)
        self._last = 0

    def add(self, now: float) -> None:
        self._turn(now)
        self._counts[0] += 1

    def whole(self, now: float) -> list[int]:
        """The counts of the complete buckets."""
        self._turn(now)
        return self._counts[1:]

    def all(self, now: float) -> int:
        self._turn(now)
        return sum(self._counts)

    def _turn(self, now: float) -> None:
        number = int(now / BUCKET)
        if number > self._last:
            new = min(number - self._last, BUCKETS + 1)
            self._counts = ([0] * new + self._counts)[: BUCKETS + 1]
            self._last = number


class CollisionShare:
    """The share of its time that a flusher spent on commits that collided with others."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._spans: deque[tuple[float, float]] = deque()

    def begin(self, then: float) -> None:
        """Such a commit began then. No change if one is under way."""
        if self._begun is None:
            self._begun = then

    def end(self, now: float) -> None:
        """The commit is done. No change if none was under way."""
        if self._begun is not None:
            self._spans.append((self._begun, now))
            self._begun = None
            while self._spans[0][1] < now - BUCKET * BUCKETS:
                self._spans.popleft()

    def factor(self, now: float) -> float:
        """How many times as often it could have written without waiting."""
        window = BUCKET * BUCKETS
        since = now - window
        spans = [*self._spans, *([(self._begun, now)] if self._begun is not None else [])]
        lost = sum(max(0.0, end - max(begin, since)) for begin, end in spans)  # older spans end before the window
        return min(MOST_FACTOR, window / max(window - lost, 1e-9))


class CounterWrites:
    """The writes of one counter."""

    __slots__ = (
        "_begun",
        "_events",
        "_exposure",
        "_left",
        "_mine",
        "_since",
        "_then",
        "blames",
        "last",
        "shards",
        "writes",
    )

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.last = 0.0
        """When we last wrote, or tried to."""
        self.writes = Buckets()
        self.blames = Buckets()
        """Commits that failed or took long, most likely because of this counter."""
        self._mine: dict[int, float] = {}
        """When we last wrote to each shard, since the looks began."""
        self._begun = 0.0
        self._left = 0
        """Looks that are left in this series."""
        self._events = self._exposure = 0.0
        self._since = 0
        """Writes of ours since the last look."""
        self._then = 0
        """The count of `writes` when the looks began; 0 if they never did."""

    def wrote(self, shard: int, shards: int, now: float) -> None:
        """We wrote to this shard; the counter has `shards` of them."""
        if shards != self.shards:
            self.become(shards)
        self.last = now
        self.writes.add(now)
        self._since += 1
        if self._then:  # also after the last look: its answer may still be on its way
            self._mine[shard] = now

    def become(self, shards: int) -> None:
        """The number of shards has changed: what was seen of others' writes no longer applies."""
        self.shards = shards
        self.blames = Buckets()
        self._left = self._then = 0
        self._events = self._exposure = 0.0

    def looks(self, now: float, pick: Callable[[int], int]) -> list[int]:
        """The shards to look at now."""
        if not self._left:
            recent = self.writes.all(now)
            most = WRITES_FOR_A_READ * LOOKS * min(self.shards, LOOKED_AT)
            if recent < FEWEST or (self._then and self._since < most and recent < 2 * self._then + MORE):
                return []
            self._begin(recent, now)
        if now - self._begun < BUCKET / 2:
            return []
        self._left -= 1
        begin = pick(self.shards)
        return [(begin + number) % self.shards for number in range(min(self.shards, LOOKED_AT))]

    def _begin(self, recent: int, now: float) -> None:
        self._left, self._then, self._since, self._begun = LOOKS, recent, 0, now
        self._mine = {}
        self._events /= 2  # older ones count less
        self._exposure /= 2

    def saw(self, shard: int, age: float | None, asked: float) -> None:
        """The shard was written `age` seconds before `asked`, by anybody; None: never."""
        since = asked - self._mine.get(shard, self._begun)
        if since <= 0:
            return
        if age is not None and age < since - SLACK:
            self._events += 1
            since = max(age, 0.001)
        self._exposure += since / self.shards

    def own(self, now: float) -> float:
        """Our writes per second, without short bursts."""
        counts = self.writes.whole(now)
        return min(sum(counts) / len(counts), UNEVEN * min(counts)) / BUCKET

    def others(self) -> float:
        """Writes per second by others."""
        return max(self._events - 1, 0) / self._exposure if self._events else 0.0

    def others_surely(self) -> float:
        """A cautious lower estimate of `others`; 0 until the looks have outlasted a burst."""
        if self._left or not self._events:
            return 0.0
        return self.others() * max(0.0, 1 - SURE / sqrt(self._events))

    def heat(self, now: float) -> float:
        """The approximate writes per second to each shard."""
        return (self.writes.all(now) / (BUCKET * BUCKETS) + self.others()) / self.shards
