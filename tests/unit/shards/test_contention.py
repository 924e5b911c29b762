"""A counter that sizes itself keeps up with the best fixed number of shards, where an entity takes a write a second."""

import logging

import pytest

from bench.contention import ENOUGH, WRITERS, simulated


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_gets_as_much_done_as_the_best_fixed_number_and_cold_ones_stay_at_one(seed: int) -> None:
    itself, best = simulated(None, seed, grown=True), simulated(50, seed, grown=False)
    assert best["rate"] > 0.9 * WRITERS
    assert itself["rate"] > ENOUGH * best["rate"]
    assert WRITERS < itself["shards"] <= 3.5 * WRITERS
    assert itself["cold"] == 1


def test_it_is_contention_that_makes_the_difference() -> None:
    one, ten = simulated(1, 1, grown=False), simulated(10, 1, grown=False)
    assert one["rate"] < 1.2
    assert ten["rate"] < 0.5 * WRITERS
    assert one["aborted"] > ten["aborted"] > 0.1
