"""What a plan says agrees with what was measured, and with what the services' own parts do in a simulation."""

import json
import random
from collections.abc import Mapping, Sequence
from itertools import product, starmap
from typing import Any, Final

import pytest

from countersink_server.cli import traffic_plan
from countersink_server.cli.traffic_plan import LEAST, Operations, Prices, Traffic, TrafficPlan, of_original, planned
from flusher.flush.commit_loop import ShardBook
from flusher.flush.flusher import GROWTH_INTERVAL, REMOVAL_INTERVAL, SWEEP_INTERVAL
from flusher.shards import MOST_ASKED_AT_ONCE, WRITES_FOR_A_READ
from tests.meta.checkout import ROOT
from tests.unit.cli.random_traffic import simulated
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore

ROWS: Final[dict[str, dict[str, Any]]] = {
    row["name"]: row for row in json.loads((ROOT / "bench" / "results.json").read_text())["rows"]
}
LIKE_THE_ROWS: Final = {  # not cloud-operations-1, which sees some twenty increments in a round
    "cloud-operations": Traffic(5_000),
    "cloud-operations-names": Traffic(5_000, 1_000),
    "cloud-operations-steady": Traffic(3_000, 1_000),
    "cloud-operations-100": Traffic(100),
    "cloud-operations-ids": Traffic(1_000, ids="each"),
    "cloud-operations-key": Traffic(1_000, ids="batch"),
}
EMULATOR: Final = 0.004
"""Seconds of a publish on the emulator."""
GROWN_SINCE: Final = "2026-11-23T17:00"
"""Later rows begin when windows have grown. Shards of a few new counters have been looked at by then, too."""
OF_ROWS: Final = 0.2
OF_SIMULATION: Final = 0.15


def first_looks(counters: int) -> float:
    """Reads per second while flushers look at the shards of new counters: two minutes if there are 1,000."""
    return min(counters, MOST_ASKED_AT_ONCE) / GROWTH_INTERVAL


def far(ours: float, theirs: float) -> float:
    return abs(ours / theirs - 1)


MEASURED_ROWS: Final = [name for name in LIKE_THE_ROWS if ROWS.get(name, {}).get("ours")]


def test_there_are_rows() -> None:
    assert len(MEASURED_ROWS) >= 4


@pytest.mark.parametrize("name", MEASURED_ROWS)
def test_a_plan_agrees_with_the_benchmarks(name: str) -> None:
    """The load of the benchmark is even, and a plan's is random."""
    traffic, row = LIKE_THE_ROWS[name], ROWS[name]
    grown = row["date"] > GROWN_SINCE
    plan = TrafficPlan(traffic, ingests=1, flushers=1, interval=10.0 if grown else 1.0, publish=EMULATOR)
    operations = plan.operations.all + (0 if grown else first_looks(traffic.counters))
    ours = row["ours"]
    rounds_differ = max(far(ours["min"], ours["median"]), far(ours["max"], ours["median"]))
    assert far(operations / traffic.rate * 1_000_000, ours["median"]) < max(OF_ROWS, rounds_differ)


def test_so_does_one_with_many_counters_that_somebody_reads() -> None:
    traffic = LIKE_THE_ROWS["cloud-operations-steady"]
    plan = TrafficPlan(traffic, ingests=1, flushers=1, publish=EMULATOR)
    measured_ = ROWS["cloud-operations-steady"]["reference"]["median"]
    assert far(plan.operations.all / traffic.rate * 1_000_000, measured_) < OF_ROWS


def test_the_original_is_as_measured() -> None:
    assert of_original(1).all * 1_000_000 == ROWS["cloud-operations"]["reference"]["median"]


@pytest.mark.parametrize(
    "plan",
    [
        TrafficPlan(Traffic(1), 1, 1), TrafficPlan(Traffic(5_000), 1, 1), TrafficPlan(Traffic(300, 10_000), 1, 1),
        TrafficPlan(Traffic(10, 100), 1, 3), TrafficPlan(Traffic(5_000, 1_000), 2, 3),
        TrafficPlan(Traffic(1_000, 100), 2, 2, interval=5.0), TrafficPlan(Traffic(5_000, 100, ids="each"), 1, 1),
        TrafficPlan(Traffic(100), 1, 1, linger=0.0), TrafficPlan(Traffic(1_000), 1, 1, linger=0.1),
    ],
    ids=repr,
)  # fmt: skip
def test_a_plan_agrees_with_a_simulation(plan: TrafficPlan) -> None:
    """Which takes so long that chance makes no difference, and not longer."""
    seconds = max(2_000 / plan.traffic.rate, (8 if plan.interval <= 1 else 20) * plan.window)
    seen = simulated(plan, min(seconds, max(20_000 / plan.traffic.rate, 2.2 * plan.window)))
    operations = plan.operations
    assert far(operations.deletes, seen.deletes) < OF_SIMULATION
    assert far(operations.writes, seen.writes) < OF_SIMULATION
    assert far(operations.writes - operations.deletes, seen.writes - seen.deletes) < OF_SIMULATION


def test_there_are_as_many_processes_as_needed_and_two_at_least() -> None:
    small, large = planned(Traffic(10)), planned(Traffic(100_000, ids="each"))
    assert (small.ingests, small.flushers) == (LEAST, LEAST)
    assert large.ingests == 100_000 / traffic_plan.SINGLES
    assert 100_000 / traffic_plan.COMMITTED <= large.flushers <= 100_000 / traffic_plan.COMMITTED + 2
    assert small.too_few() == large.too_few() == []
    assert len(planned(Traffic(100_000, ids="each"), ingests=1, flushers=1).too_few()) == 2


def test_a_counter_gets_a_shard_for_each_write_per_second() -> None:
    def shards(flushers: int, rate: float = 5_000, counters: int = 1, interval: float = 1.0) -> int:
        return TrafficPlan(Traffic(rate, counters), 1, flushers, interval).shards(1, 100, 1.0)

    assert [shards(flushers) for flushers in (1, 2, 3)] == [1, 2, 3]
    assert shards(3, interval=10.0) == 1
    assert shards(3, rate=5, counters=100) == 1
    assert TrafficPlan(Traffic(5_000), 1, 1).shards(20, 100, 1.0) == 20


class AskedStore(MemoryStore):
    """Counts the configs that it was asked for."""

    asked = 0

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        self.asked += len(counters)
        return await super().shards(counters)


@pytest.mark.parametrize("rate", [2, 60])
async def test_configs_are_read_as_often_as_the_flusher_reads_them(rate: int) -> None:
    """The flusher's own `ShardBook`, for an hour."""
    plan = TrafficPlan(Traffic(rate, 100), 1, 1, in_redis=True)
    clock = ManualClock()
    store, random_ = AskedStore(clock), random.Random(1)
    book = ShardBook(store, clock, 1)
    for _ in range(3_600):
        names = {f"c{random_.randrange(100)}": 1 for _ in range(rate)}
        await book.adds(names)
        clock.turn(1)
    others = 1 / SWEEP_INTERVAL + 1 / REMOVAL_INTERVAL + plan.shard_writes / WRITES_FOR_A_READ
    assert far(plan.operations.reads - others, store.asked / 3_600) < OF_SIMULATION


def test_what_redis_a_longer_interval_and_ids_change() -> None:
    plan = TrafficPlan(Traffic(5_000, 100), 1, 1)
    redis = TrafficPlan(Traffic(5_000, 100), 1, 1, in_redis=True)
    longer = TrafficPlan(Traffic(5_000, 100), 1, 1, interval=10.0)
    ids = TrafficPlan(Traffic(5_000, 100, ids="each"), 1, 1)
    assert plan.operations.reads - redis.operations.reads == pytest.approx(1, rel=0.01)
    assert 8 < plan.shard_writes / longer.shard_writes < 10
    assert ids.operations.deletes - plan.operations.deletes == pytest.approx(5_000, rel=0.01)


def test_a_month_costs_what_its_operations_cost() -> None:
    prices = Prices((0.06, 0.18), (0.03, 0.06), (0.01, 0.02))
    assert Operations(1, 0, 0).a_month(prices) == pytest.approx((1.5552, 4.6656))
    assert Operations(0, 1, 0).a_month(prices) == pytest.approx((0.7776, 1.5552))
    assert Operations(0, 0, 1).a_month(prices) == pytest.approx((0.2592, 0.5184))


def test_no_traffic_is_beyond_the_arithmetic() -> None:
    rates, counters, ids = (0.001, 1.0, 1e7), (1, 1_000, 1_001, 10**9), ("none", "batch", "each")
    for traffic, interval in product(starmap(Traffic, product(rates, counters, ids)), (0.0, 60.0)):
        plan = planned(traffic, interval=interval)
        assert all(number >= 0 for number in plan.operations), plan
        assert plan.shard_writes <= traffic.rate * 1.001, plan
        assert plan.shards(1, 100, 1.0) >= 1, plan
