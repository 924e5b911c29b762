"""Estimates what a traffic needs and costs: processes, shards, freshness, and operations of Datastore. Pure arithmetic.

It assumes that all counters are counted equally often and at random. Reads by clients are not in it. The first minutes
of new counters cost more: flushers look at their shards.
"""

from dataclasses import dataclass
from math import ceil, exp, inf
from typing import Final

from countersink_server.planning import measured
from countersink_server.planning.costs import Operations
from countersink_server.planning.pacing import distinct, drafts, publishes
from flusher.flush.flusher import REMOVAL_INTERVAL, SWEEP_INTERVAL
from flusher.flush.plan import MOST_IN_COMMIT
from flusher.shards import ENOUGH, FRESH, MOST_REMEMBERED, WRITES_FOR_A_READ
from ingest.publishing.overlay_cleanup import INTERVAL, MOST

LEAST: Final = 2
"""Processes of each kind, so that one may end at any time."""
MOST_PROCESSES: Final = 1_000
SETTLES_AT: Final = 21.0
"""Seconds after which an ingest without Redis asks for an envelope, on average: `PATIENCE` of the overlay and half a
round. What is applied later is asked for once more, by itself.
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes."""

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
    publish: float = measured.PUBLISH

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
        """Of a window: how many commits are full, how many increments these hold each, and how many are left."""
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
        """Of a counter. `first`: of a new one; `writes`: per second that one shard takes."""
        return max(first, min(self._shards(writes), most)) if self._hottest > ENOUGH * writes * first else first

    def too_few_shards(self, most: int, writes: float) -> list[str]:
        """What `most` shards of a counter can't do. Empty if they are enough."""
        if (needed := self._shards(writes)) <= most:
            return []
        times = f"a counter is written {self._hottest:,.0f} times a second, and needs {needed:,}"
        return [f"Too few shards: {times}. COUNTERSINK_MAX_SHARDS allows {most:,}."]

    @property
    def _hottest(self) -> float:
        """How often a counter is written per second."""
        return min(self.commits, self.traffic.rate / self.traffic.counters)

    def _shards(self, writes: float) -> int:
        return ceil(self._hottest / writes - 1e-9)

    @property
    def operations(self) -> Operations:
        ids = self.traffic.rate if self.traffic.ids == "each" else 0.0
        receipts = self.envelopes + ids
        return Operations(receipts + self.shard_writes, self._reads(), receipts)

    def too_few(self) -> list[str]:
        """What these processes can't do. Empty if they are enough."""
        said = []
        if (each := self.traffic.rate / self.ingests) > (most := takes(self.traffic)):
            said.append(f"Too few ingests: each gets {each:,.0f} increments/s, and takes about {most:,}.")
        if (each := self.operations.writes / self.flushers) > measured.COMMITTED:
            said.append(
                f"Too few flushers: each has to write {each:,.0f} entities/s, and may take {measured.COMMITTED:,}."
            )
        return said

    def _reads(self) -> float:
        each = self.flushers * self.traffic.counters
        fresh = FRESH if self.traffic.counters <= MOST_REMEMBERED else 0.0
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
    """Increments per second that one ingest takes."""
    return measured.BATCHED if traffic.ids == "batch" else measured.SINGLES


def planned(
    traffic: Traffic, *, ingests: int | None = None, flushers: int | None = None, **others: float
) -> TrafficPlan:
    """The plan with as many processes as the traffic needs, except where their number is given."""
    ingests = ingests or max(LEAST, ceil(traffic.rate / takes(traffic)))
    number = flushers or LEAST
    while True:
        plan = TrafficPlan(traffic, ingests, number, **others)  # type: ignore[arg-type] # fields, by their names
        if flushers or number == MOST_PROCESSES or plan.operations.writes <= number * measured.COMMITTED:
            return plan
        number += 1
