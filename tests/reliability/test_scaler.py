"""The rule of the ScaledObject, look by look, without processes."""

from dataclasses import replace

import pytest

from tests.reliability.scaler import FILE, Rule, Scaler, rule

RULE = Rule("q", threshold=70, least=1, most=10, every=15, failures=3, fallback=4, patience=300)


def looks(scaler: Scaler, running: int, *values: float | None) -> list[int]:
    """One after the other, 15 seconds apart."""
    found = []
    for turn, value in enumerate(values):
        running = scaler.wants(value, running, turn * scaler.rule.every)
        found.append(running)
    return found


def test_the_rule_is_in_the_manifest() -> None:
    found = rule(FILE.read_text())
    assert found.threshold < 100
    assert found.least < found.fallback <= found.most
    assert "countersink_flusher_busy_seconds_total" in found.query


def test_the_fallback_starts_flushers_where_there_are_none_and_so_no_metrics() -> None:
    assert looks(Scaler(RULE), 0, None, None, None, None, None) == [0, 0, 0, 4, 4]


def test_three_missing_answers_change_nothing_and_an_answer_between_them_forgets_them() -> None:
    assert looks(Scaler(RULE), 2, None, None, None, 140, None, None, None) == [2] * 7
    assert looks(Scaler(RULE), 2, None, None, None, None) == [2, 2, 2, 4]


@pytest.mark.parametrize("threshold", [70, 7])
def test_flushers_that_are_busy_all_the_time_get_more_until_they_are_not(threshold: int) -> None:
    scaler = Scaler(replace(RULE, threshold=threshold))
    assert looks(scaler, 1, threshold / 0.7, 2 * threshold / 0.7, 3 * threshold / 0.7) == [2, 3, 5]
    assert looks(scaler, 5, 5 * threshold) == [5]


def test_a_small_difference_changes_nothing() -> None:
    assert looks(Scaler(RULE), 4, 4 * 70 * 1.09, 4 * 70 * 0.91) == [4, 4]


def test_it_adds_four_or_doubles_at_most_and_ends_at_its_limit() -> None:
    assert looks(Scaler(RULE), 1, 10_000, 10_000, 10_000) == [5, 10, 10]


def test_there_are_fewer_only_after_all_looks_of_five_minutes_asked_for_it() -> None:
    scaler = Scaler(RULE)
    assert looks(scaler, 4, 280, *[0.0] * 19) == [4] * 20
    assert scaler.wants(0.0, 4, 300) == 1


def test_the_fallback_does_not_stop_flushers_at_once() -> None:
    assert looks(Scaler(RULE), 8, 560, *[None] * 6) == [8] * 7


def test_a_threshold_below_one_has_no_fallback() -> None:
    """So the manifest must not have one."""
    scaler = Scaler(replace(RULE, threshold=0.7, patience=0))
    assert looks(scaler, 4, None, None, None, None) == [4, 4, 4, 1]
