"""What a traffic needs and costs: envelopes, processes, shards, freshness, operations of Datastore and their
price.

Pure arithmetic on the rules of the code, and on figures that were measured or are assumed.
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log1p
from typing import Final, NamedTuple

from flusher.announcer import IDLE
from flusher.flush.commit_loop import FRESH, MOST_NUMBERS
from flusher.flush.flusher import REMOVAL_INTERVAL, SWEEP_INTERVAL
from flusher.flush.window import MOST_IN_COMMIT
from flusher.shards import ENOUGH, WRITES_FOR_A_READ
from ingest.accept.drafts import GAP, MAX_ENTRIES, STREAM, STRETCH
from ingest.accept.publishing import INTERVAL, MOST, SIDE_BY_SIDE

# The figures of a plan that were measured, and those that are assumed. The others are constants of the code.


SINGLES: Final = 20_000
"""Increments per second of one ingest, each in a request of its own. Measured: `post-ids`, the slower of `post` and
`post-ids` in bench/results.json, on one core.
"""
BATCHED: Final = 1_000_000
"""Increments per second of one ingest, in batches of 1,000. Measured: less than `array1000-apart`, without keys."""
COMMITTED: Final = 5_000
"""Entities per second that one flusher writes. Assumed: one full commit a second. Nobody has measured it on Google
Cloud; on the emulators, the row `cloud-operations-ids` wrote a fifth of it.
"""
PUBLISH: Final = 0.015
"""Seconds of one publish. Assumed: Pub/Sub in the same region. On its emulator it takes about 4 ms, and an ingest that
gets 100 increments per second then sends more envelopes.
"""
ORIGINAL_READS: Final = 2
ORIGINAL_WRITES: Final = 1
"""Operations of one transaction of Google's example: its config, its shard, and the shard again. Measured: the
reference of `cloud-operations`, 3,000,000 operations per million increments, without transactions that collided.
"""
ORIGINAL_SHARD_WRITES: Final = 1.0
"""Writes per second that one shard takes, as Google's documentation says."""


# Counts operations of Datastore, and what they cost. Pure.


MONTH: Final = 30 * 86_400
"""Seconds."""
PRICED: Final = 100_000
"""Operations that a price is for."""


class Prices(NamedTuple):
    """The lowest and the highest price of `PRICED` operations, in dollars: regions differ."""

    write: tuple[float, float]
    read: tuple[float, float]
    delete: tuple[float, float]


class Operations(NamedTuple):
    """Operations per second."""

    writes: float
    reads: float
    deletes: float

    @property
    def all(self) -> float:
        return sum(self)

    def a_month(self, prices: Prices) -> tuple[float, float]:
        low, high = (sum(n * pair[end] for n, pair in zip(self, prices, strict=True)) for end in (0, 1))
        return low * MONTH / PRICED, high * MONTH / PRICED


def of_original(rate: float) -> Operations:
    """Google's example: a transaction for each increment."""
    return Operations(rate * ORIGINAL_WRITES, rate * ORIGINAL_READS, 0.0)


# Estimates how many envelopes an ingest sends. Pure arithmetic on the rules of `ingest.accept.drafts`.


_NEVER: Final = 1e-12
"""A probability that makes no difference."""


def publishes(rate: float, linger: float, publish: float) -> float:
    """Publishes per second of an ingest that gets `rate` requests per second."""
    waits = min(linger, publish)
    early = exp(-rate * (publish - waits))  # the chance that no linger ends before the publish does
    apart = max(waits + (1 - early + exp(-rate * publish)) / rate, publish / SIDE_BY_SIDE)
    if not linger:
        return 1 / apart
    begins = 1 - (1 - early) * _fewer(STREAM - 1, rate * waits) - early * _fewer(STREAM, rate * waits)
    empty = exp(-rate * GAP)
    ends = empty * sum(_few_in_gaps(gaps, STREAM - 2, rate * GAP) for gaps in range(STREAM - 1))
    gaps = max(STRETCH * linger - 1 / rate, 0) / GAP
    waited = gaps if empty < _NEVER else -expm1(gaps * log1p(-empty)) / empty
    streaming = begins / (begins + ends)
    return 1 / (streaming * (1 / rate + GAP * waited) + (1 - streaming) * apart)


def drafts(increments: float, counters: int, *, keyed: bool) -> int:
    """Envelopes in a publish of this many increments. Each holds at most `MAX_ENTRIES` counters and ids."""
    return ceil(max(1, increments / (MAX_ENTRIES if keyed else until_distinct(MAX_ENTRIES, counters))))


def distinct(increments: float, counters: int) -> float:
    """How many counters this many increments count, on average. The first one always counts one."""
    return min(increments, 1.0) - (counters - 1) * expm1(min(0.0, 1 - increments) / counters)


def until_distinct(number: int, counters: int) -> float:
    """How many increments count this many different counters, on average."""
    return -counters * log1p(-number / counters) if number < counters else inf


def _fewer(number: int, mean: float) -> float:
    """The probability that fewer than `number` come, if `mean` come on average."""
    term = total = exp(-mean)
    for count in range(1, number):
        term *= mean / count
        total += term
    return total


def _few_in_gaps(gaps: int, most: int, mean: float) -> float:
    """The probability that something comes in each of this many gaps, and at most `most` in all."""
    if not gaps:
        return 1.0
    term = total = 0.0
    for count in range(1, most - gaps + 2):
        term = exp(-mean) * mean if count == 1 else term * mean / count
        total += term * _few_in_gaps(gaps - 1, most - count, mean)
    return total


LEAST: Final = 2
"""Processes of each kind, so that one may end at any time."""
MOST_PROCESSES: Final = 1_000
READS_OF_COUNTER: Final = 3
"""Reads of a counter: its config, its guard, and one shard."""
QUERIES_OF_LARGEST: Final = 4
"""Queries for dead letters, numbers of shards, the highest counts, and equal ones."""
SETTLES_AT: Final = 21.0
"""Seconds after which an ingest without Redis asks for an envelope, on average: `PATIENCE` of the overlay and half a
round. What is applied later is asked for once more, by itself.
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    rate: float
    """Increments per second."""
    counters: int = 1
    ids: str = "none"
    """Whether clients send ids: `none`, `batch` (one for each batch), or `each` (one for each increment)."""
    batch: int = 1_000
    """Increments in a batch with an id."""


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """What the traffic needs with these processes and settings."""

    traffic: Traffic
    ingests: int
    flushers: int
    interval: float = 1.0
    linger: float = 0.02
    in_redis: bool = False
    publish: float = PUBLISH
    told: float | None = None
    """Seconds between two reports of a counter; None if there is no feed."""
    judged: bool = False
    """Whether counters have thresholds."""

    @property
    def envelopes(self) -> float:
        """Per second, from all ingests."""
        traffic = self.traffic
        if traffic.ids == "batch":
            return traffic.rate / traffic.batch
        each = traffic.rate / self.ingests
        starts = publishes(each, self.linger, self.publish)
        return self.ingests * starts * drafts(each / starts, traffic.counters, keyed=traffic.ids == "each")

    @property
    def window(self) -> float:
        """Seconds from one flush of a flusher to its next. A window begins with its first envelope."""
        return self.interval + self.flushers / self.envelopes

    def _commits(self) -> tuple[int, float, float]:
        """A window's commits: how many are full, how many increments each of these has, and how many are left."""
        traffic, envelope = self.traffic, self.traffic.rate / self.envelopes
        increments = traffic.rate * self.window / self.flushers
        receipts = (traffic.ids == "each") + 1 / envelope
        low, high = 0.0, increments
        if distinct(high, traffic.counters) + receipts * high <= MOST_IN_COMMIT:
            return 0, inf, increments
        while high - low > envelope / 2:
            middle = (low + high) / 2
            fits = distinct(middle, traffic.counters) + receipts * middle <= MOST_IN_COMMIT
            low, high = (middle, high) if fits else (low, middle)
        full = max(high // envelope, 1) * envelope
        return int(increments // full), full, increments % full

    @property
    def commits(self) -> float:
        """Per second, by all flushers."""
        number, _, rest = self._commits()
        return self.flushers / self.window * (number + (rest > 0))

    @property
    def shard_writes(self) -> float:
        """Per second. A counter is written once in each commit that counts it."""
        number, full, rest = self._commits()
        counters = self.traffic.counters
        each = (number and number * distinct(full, counters)) + distinct(rest, counters)
        return self.flushers / self.window * each

    def shards(self, first: int, most: int, writes: float) -> int:
        """The shards of a counter. `first`: those of a new one; `writes`: how many a second one shard takes."""
        return max(first, min(self._shards(writes), most)) if self._hottest > ENOUGH * writes * first else first

    def too_few_shards(self, most: int, writes: float) -> list[str]:
        """What `most` shards of a counter can't do. Empty if they are enough."""
        if (needed := self._shards(writes)) <= most:
            return []
        times = f"a counter is written {self._hottest:,.0f} times a second, and needs {needed:,}"
        return [f"Too few shards: {times}. COUNTERSINK_MAX_SHARDS allows {most:,}."]

    @property
    def _hottest(self) -> float:
        return min(self.commits, self.traffic.rate / self.traffic.counters)

    def _shards(self, writes: float) -> int:
        return ceil(self._hottest / writes - 1e-9)

    @property
    def operations(self) -> Operations:
        ours = Operations(self._receipts + self.shard_writes, self._reads(), self._receipts)
        return Operations(*map(sum, zip(ours, self._feed(), self._thresholds(), strict=True)))

    @property
    def _receipts(self) -> float:
        """Per second."""
        return self.envelopes + (self.traffic.rate if self.traffic.ids == "each" else 0.0)

    def _feed(self) -> Operations:
        """The most operations of the feed: a counter that keeps counting is not deleted from what is owed."""
        if self.told is None:
            return Operations(0, 0, 0)
        times = min(self.shard_writes, self.traffic.counters / max(self.told, IDLE))
        return Operations(self.shard_writes + times, 1 / IDLE + (2 + READS_OF_COUNTER) * times, times)

    def _thresholds(self) -> Operations:
        if not self.judged:
            return Operations(0, 0, 0)
        changed = min(self.shard_writes, self.traffic.counters / IDLE)
        return Operations(
            self.shard_writes, 2 / IDLE + self.shard_writes + READS_OF_COUNTER * changed, self.shard_writes
        )

    def reads_of_largest(self, limit: int) -> float:
        """The reads of one request for this many of the largest counters: each of these is read, about as many with
        something pending that may be among them, and the receipts of what is pending.
        """
        age = self.window / 2
        counters = min(
            limit + min(distinct(self.traffic.rate * age, self.traffic.counters), limit), self.traffic.counters
        )
        return READS_OF_COUNTER * counters + age * self._receipts + QUERIES_OF_LARGEST

    def too_few(self) -> list[str]:
        """What these processes can't do. Empty if they are enough."""
        said = []
        if (each := self.traffic.rate / self.ingests) > (most := takes(self.traffic)):
            said.append(f"Too few ingests: each gets {each:,.0f} increments/s, and takes about {most:,}.")
        if (each := self.operations.writes / self.flushers) > COMMITTED:
            said.append(f"Too few flushers: each has to write {each:,.0f} entities/s, and may take {COMMITTED:,}.")
        return said

    def _reads(self) -> float:
        each = self.flushers * self.traffic.counters
        fresh = FRESH if self.traffic.counters <= MOST_NUMBERS else 0.0
        configs = each / (fresh + each / self.shard_writes)
        background = self.flushers * (1 / SWEEP_INTERVAL + 1 / REMOVAL_INTERVAL)
        return configs + background + self.shard_writes / WRITES_FOR_A_READ + (0 if self.in_redis else self._settling())

    def _settling(self) -> float:
        """Reads per second of ingests that ask which of their envelopes are applied: the time and a query a round."""
        due = INTERVAL * self.envelopes / self.ingests
        late = max(0.0, 1 - SETTLES_AT / self.interval) if self.interval else 0.0
        rounds = 1 - exp(-due) + max(0.0, due / MOST - 1)
        if self.traffic.ids == "batch":  # their ids are not in the range that the query asks for
            return self.ingests * rounds / INTERVAL + self.envelopes * (1 + late)
        return 2 * self.ingests * rounds / INTERVAL + self.envelopes * late


def takes(traffic: Traffic) -> int:
    return BATCHED if traffic.ids == "batch" else SINGLES


def planned(
    traffic: Traffic, *, ingests: int | None = None, flushers: int | None = None, **others: float | None
) -> TrafficPlan:
    """The plan with as many processes as the traffic needs, except where their number is given."""
    ingests = ingests or max(LEAST, ceil(traffic.rate / takes(traffic)))
    number = flushers or LEAST
    while True:
        plan = TrafficPlan(traffic, ingests, number, **others)  # type: ignore[arg-type] # fields, by their names
        if flushers or number == MOST_PROCESSES or plan.operations.writes <= number * COMMITTED:
            return plan
        number += 1
