"""Owns what a flusher knows of how often one counter is written: by itself, and, from looks now and then, by others.

A look asks how long ago some shards were written. What was written after our own last write, others wrote: so many of
them in so much time that was looked back on. Who writes alone never sees any, however regularly it writes. Pure.
"""

from collections import deque
from collections.abc import Callable
from math import sqrt
from typing import Final

BUCKET: Final = 5.0
BUCKETS: Final = 4
"""Whole ones that count. So a burst of 10 s, which touches three, leaves one that it is not in."""
UNEVEN: Final = 1.25
"""How much more than in the poorest bucket there is to be in all of them, on average, to be believed."""
LOOKS: Final = 10
LOOKED_AT: Final = 4
"""Shards in one look, at most."""
SLACK: Final = 0.1
"""Seconds in which nobody can say whose write was the last."""
SURE: Final = 2.0
"""Standard deviations by which an estimate of others' writes is made smaller, before anything follows from it."""
WRITES_FOR_A_READ: Final = 100
MORE: Final = 10
"""Writes by which, within the buckets, there must be more than twice as many as before, to look again earlier."""
MOST_FACTOR: Final = 4.0
"""Times as often as it is seen a counter may be wanted to be written, by what we waited."""
FEWEST: Final = 3
"""Writes, within the buckets, of a counter that is worth a look."""


class Buckets:
    """How many of something there were in the last seconds."""

    __slots__ = ("_counts", "_last")

    def __init__(self) -> None:
        self._counts = [0] * (BUCKETS + 1)
        self._last = 0

    def add(self, now: float) -> None:
        self._turn(now)
        self._counts[0] += 1

    def whole(self, now: float) -> list[int]:
        """Without the one that is not over yet."""
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


class Waited:
    """How much of its time a flusher spent on commits that met others, from the first try to the end."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._spans: deque[tuple[float, float]] = deque()

    def begin(self, then: float) -> None:
        """One of them has begun then; if it goes on, nothing is new."""
        if self._begun is None:
            self._begun = then

    def end(self, now: float) -> None:
        """It is done; or there was none."""
        if self._begun is not None:
            self._spans.append((self._begun, now))
            self._begun = None
            while self._spans[0][1] < now - BUCKET * BUCKETS:
                self._spans.popleft()

    def factor(self, now: float) -> float:
        """How many times as often it could have written otherwise."""
        window = BUCKET * BUCKETS
        since = now - window
        spans = [*self._spans, *([(self._begun, now)] if self._begun is not None else [])]
        lost = sum(max(0.0, end - max(begin, since)) for begin, end in spans)  # older ones do not reach into it
        return min(MOST_FACTOR, window / max(window - lost, 1e-9))


class Writing:
    """Of one counter with `shards` shards."""

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
        """When we wrote last, or tried to."""
        self.writes = Buckets()
        self.blames = Buckets()
        """Commits that failed or took long, most likely because of this counter."""
        self._mine: dict[int, float] = {}
        """When we wrote to which shard last, since the looks began."""
        self._begun = 0.0
        self._left = 0
        """Looks."""
        self._events = self._exposure = 0.0
        self._since = 0
        """Writes of ours since the last look."""
        self._then = 0
        """What `writes` said when the looks began; 0 if they never did."""

    def wrote(self, shard: int, shards: int, now: float) -> None:
        """We did, at one of so many shards."""
        if shards != self.shards:
            self.become(shards)
        self.last = now
        self.writes.add(now)
        self._since += 1
        if self._then:  # also after the last look, whose answer may be under way
            self._mine[shard] = now

    def become(self, shards: int) -> None:
        """Another number of shards: what was seen of the others' pace at one of them says nothing any more."""
        self.shards = shards
        self.blames = Buckets()
        self._left = self._then = 0
        self._events = self._exposure = 0.0

    def looks(self, now: float, pick: Callable[[int], int]) -> list[int]:
        """Shards to be looked at now."""
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
        """How many seconds ago it was written, by anybody, at the time `asked`; None: never."""
        since = asked - self._mine.get(shard, self._begun)
        if since <= 0:
            return
        if age is not None and age < since - SLACK:
            self._events += 1
            since = max(age, 0.001)
        self._exposure += since / self.shards

    def own(self, now: float) -> float:
        """Writes of ours a second, as far as they last."""
        counts = self.writes.whole(now)
        return min(sum(counts) / len(counts), UNEVEN * min(counts)) / BUCKET

    def others(self) -> float:
        """Writes of others a second."""
        return max(self._events - 1, 0) / self._exposure if self._events else 0.0

    def others_surely(self) -> float:
        """At least so many; nothing until the looks have gone on for long enough to outlast a burst."""
        if self._left or not self._events:
            return 0.0
        return self.others() * max(0.0, 1 - SURE / sqrt(self._events))

    def heat(self, now: float) -> float:
        """About how often each of its shards is written."""
        return (self.writes.all(now) / (BUCKET * BUCKETS) + self.others()) / self.shards
