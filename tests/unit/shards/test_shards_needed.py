"""Counters get more shards soon if they are written faster than their shards allow, and not otherwise."""

import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.contention import ENOUGH, WRITERS, simulated
from flusher.shards import CONTENTION, KEPT, LOOKS, MOST_WATCHED, PERIOD, RATE, SPARE, Growth, Periods
from shared.model.words import ShardAdd
from tests.unit.shards.writers import Fleet, slow_and_alone

SEEDS = range(2)


@pytest.mark.parametrize(
    "fleet",
    [
        {"writers": 1},
        {"writers": 2, "interval": 2.0},
        {"writers": 5, "interval": 5.0},
        {"writers": 10, "interval": 10.0, "irregular": True},
        {"writers": 3, "interval": 6.0},
        {"writers": 1, "interval": 3.0, "by_others": 0.5},
    ],
    ids=str,
)
def test_a_counter_written_once_a_second_or_less_stays_at_one_shard(fleet: dict[str, float]) -> None:
    for seed in SEEDS:
        assert Fleet(seed, **fleet).run(1_800).raises == []  # type: ignore[arg-type] # it is what it takes


@pytest.mark.parametrize("writers", [5, 20, 50])
def test_a_hot_one_arrives_at_its_number_within_some_tens_of_seconds(writers: int) -> None:
    for seed in SEEDS:
        fleet = Fleet(seed, writers=writers).run(90)
        assert 0.55 * writers <= fleet.shards <= 1.45 * writers
        assert fleet.raises[0][0] < 45
        steps = {one.after for _, one in fleet.raises if one.before == 1}
        assert max(steps) >= 0.25 * writers  # not one by one
    assert Fleet(0, writers=writers).run(600).shards <= 1.5 * writers


def test_a_flusher_that_writes_alone_sees_no_others() -> None:
    for seed in SEEDS:
        fleet = Fleet(seed, interval=0.2).run(300)
        assert (fleet.shards, len(fleet.raises)) == (5, 1)
        assert fleet.raises[0][1].others == 0


def test_the_writes_of_others_are_seen_though_they_are_no_flushers() -> None:
    for seed in SEEDS:
        fleet = Fleet(seed, by_others=10).run(120)
        assert 6 <= fleet.shards <= 15
        assert fleet.raises[0][1].why == RATE


@pytest.mark.parametrize("begin", [0, 28, 31.5])
def test_a_burst_of_some_seconds_raises_nothing(begin: float) -> None:
    for seed in SEEDS:
        fleet = Fleet(seed, writers=10, interval=0.1, begin=begin, end=begin + 9.5).run(200)
        assert fleet.writes > 500
        assert fleet.raises == []


def test_looking_costs_a_hundredth_of_the_writes() -> None:
    for fleet in (Fleet(1, writers=3), Fleet(1, writers=10, interval=10.0, irregular=True)):
        fleet.run(3_600)
        assert fleet.reads < 0.03 * fleet.writes


def test_it_never_goes_beyond_the_most() -> None:
    growth = Growth(0.01, 7)
    grow_alone(growth, 1.0)
    (one,) = growth.due(30)
    assert one.after == 7
    growth.raised("a", 7)
    grow_alone(growth, 1.0, begin=30, shards=7)
    assert growth.due(60) == []


def test_more_shards_than_are_needed_are_left() -> None:
    fleet = Fleet(3, writers=3, shards=40).run(600)
    assert (fleet.shards, fleet.raises) == (40, [])


def grow_alone(growth: Growth, interval: float, *, begin: float = 0.0, shards: int = 1, took: float = 0.01) -> None:
    """For 30 s."""
    for number in range(int(30 / interval)):
        shard = number % shards
        growth.wrote([ShardAdd("a", shard, 1, shards, shards)], took, begin + number * interval)


def look(growth: Growth, begin: float, ages: float) -> None:
    """Others have always written just now, or not."""
    for number in range(4 * LOOKS):
        at = begin + number * PERIOD / 2
        asked = growth.looks(at)
        growth.saw(asked, dict.fromkeys(asked, ages), at, at)
        growth.wrote([ShardAdd(name, 0, 1, 4, 4) for name in ("a", "b")], 0.01, at)


def test_constant_contention_raises_more_than_the_rate_alone() -> None:
    growth = Growth(1.0, 100)
    for name in ("a", "b"):
        growth.wrote([ShardAdd(name, 0, 1, 4, 4)], 0.01, 0)
    look(growth, 0.0, 1.0)
    assert growth.due(100) == []
    for number in range(30):
        growth.contended([ShardAdd("a", 0, 1, 4, 4)], 100 + number)
        assert growth.due(100 + number) == [] or number >= 20
    ((name, before, after, why, _, others),) = growth.due(130)
    assert (name, before, why) == ("a", 4, CONTENTION)
    assert 8 <= after <= SPARE * others
    growth.raised("a", after)
    assert growth.due(130) == []


def test_now_and_then_a_commit_meets_others_where_nothing_is_wrong() -> None:
    growth = Growth(1.0, 100)
    add = [ShardAdd("a", 0, 1, 4, 4)]
    growth.wrote(add, 0.01, 0)
    look(growth, 0.0, 1.0)
    for number in range(400):
        growth.wrote(add, 0.01, 100 + number / 10)
        if number % 20 == 0:
            growth.contended(add, 100 + number / 10)
        assert [one for one in growth.due(100 + number / 10) if one.why == CONTENTION] == []


@pytest.mark.parametrize("others", [True, False])
def test_a_slow_commit_is_a_sign_of_others_where_there_are_any(others: bool) -> None:
    growth = Growth(1.0, 100)
    for name in ("a", "b"):
        growth.wrote([ShardAdd(name, 0, 1, 4, 4)], 0.01, 0)
    look(growth, 0.0, 1.0 if others else 1e6)
    for number in range(30):
        growth.wrote([ShardAdd("a", 0, 1, 4, 4)], 1.5, 100 + number)
    assert [one.why for one in growth.due(130)] == ([CONTENTION] if others else [])


def test_of_those_in_a_contended_commit_the_most_written_is_blamed() -> None:
    """As nobody says which of them it was. When it has more shards, the next one is."""
    growth = Growth(1.0, 100)
    both = [ShardAdd("hot", 0, 1, 2, 2), ShardAdd("warm", 0, 1, 2, 2), ShardAdd("alone", 0, 1, 1, 1)]
    for number in range(200):
        at = number * 0.5
        growth.wrote(both[:1] if number % 3 else both, 0.01, at)
        asked = growth.looks(at)
        growth.saw(asked, {one: 1.0 for one in asked if one[0] != "alone"}, at, at)
    for number in range(30):
        growth.contended(both, 100 + number)
    assert [one.counter for one in growth.due(130)] == ["hot"]
    growth.raised("hot", 16)
    for number in range(30):
        growth.contended(both, 130 + number)
        growth.wrote(both, 0.01, 130 + number)
    assert [one.counter for one in growth.due(160)] == ["warm"]


@pytest.mark.parametrize(("before", "raised"), [(0.05, False), (0.6, True)])
def test_a_write_of_ours_that_is_not_known_to_be_done_is_nobody_elses(before: float, raised: bool) -> None:
    """The store shows it shortly before its answer is here. What it showed long before that is of others."""
    growth = Growth(1.0, 100)
    add = [ShardAdd("a", 0, 1, 1, 1)]
    for number in range(100):
        growth.tries()
        at = number + 1 - before
        if asked := growth.looks(at):
            growth.saw(asked, dict.fromkeys(asked, 0.01), at, at)
        growth.wrote(add, 0.9, number + 1.0)
    assert bool(growth.due(100)) is raised


@pytest.mark.parametrize("latency", [0.05, 0.9, 1.1, 1.5])
def test_a_flusher_alone_on_a_slow_store_does_not_see_itself_as_others(latency: float) -> None:
    for seed in range(4):
        assert slow_and_alone(seed, latency, 1_200.0) == []


def test_what_is_not_written_any_more_is_forgotten_and_makes_room() -> None:
    growth = Growth(1.0, 100)
    growth.wrote([ShardAdd(f"c{number}", 0, 1, 1, 1) for number in range(MOST_WATCHED)], 0.1, 0)
    growth.wrote([ShardAdd("late", 0, 1, 9, 9)], 0.1, 1)
    assert growth.most() == 1
    growth.looks(60)
    growth.wrote([ShardAdd("late", 0, 1, 9, 9)], 0.1, 61)
    assert growth.most() == 9
    growth.looks(61 + KEPT)
    assert growth.most() == 9
    growth.looks(62 + KEPT)
    assert growth.most() == 0


@given(st.lists(st.floats(0, 200), max_size=80), st.floats(0, 250))
def test_periods_count_what_is_not_too_old(times: list[float], end: float) -> None:
    periods = Periods()
    for time in sorted(times):
        periods.add_at(time)
    now = max([*times, end])
    first = int(now / PERIOD) - 4
    assert periods.all(now) == sum(int(time / PERIOD) >= first for time in times)
    assert periods.whole(now) == [
        sum(int(time / PERIOD) == int(now / PERIOD) - back for time in times) for back in range(1, 5)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.3, 8.0), st.floats(0, 20))
def test_it_only_rises_and_within_the_most(seed: int, writers: int, interval: float, others: float) -> None:
    chance = Random(seed)
    fleet = Fleet(seed, writers, interval, irregular=chance.random() < 0.5, by_others=others).run(150)
    assert 1 <= fleet.shards <= 100
    for _, one in fleet.raises:
        assert one.before < one.after <= 100


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_it_gets_as_much_done_as_the_best_fixed_number_and_cold_ones_stay_at_one() -> None:
    itself, best = simulated(None, 1, grown=True), simulated(50, 1, grown=False)
    assert best["rate"] > 0.9 * WRITERS
    assert itself["rate"] > ENOUGH * best["rate"]
    assert WRITERS < itself["shards"] <= 3.5 * WRITERS
    assert itself["cold"] == 1


def test_it_is_contention_that_makes_the_difference() -> None:
    one, ten = simulated(1, 1, grown=False), simulated(10, 1, grown=False)
    assert one["rate"] < 1.2
    assert ten["rate"] < 0.5 * WRITERS
    assert one["aborted"] > ten["aborted"] > 0.1
