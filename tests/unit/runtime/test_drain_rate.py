"""The drain rate says when a refused client should come back."""

from shared.runtime.retry import LATEST, SOONEST, Drain


def test_a_steady_drain_predicts_how_long_the_rest_takes() -> None:
    drain = Drain(100)
    drain.begins(0)
    for second in range(1, 50):
        drain.left(20, second)
    assert abs(drain.seconds(200, 49) - 10) < 1e-9
    assert drain.seconds(-5, 49) == SOONEST
    assert drain.seconds(1, 49) == SOONEST
    assert drain.seconds(10_000, 49) == LATEST


def test_a_faster_drain_counts_once_enough_has_drained() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.left(10, 100)
    slow = drain.seconds(100, 100)
    drain.left(1_000, 101)
    assert drain.seconds(100, 101) < slow / 10


def test_the_estimate_grows_while_nothing_drains() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.left(100, 1)
    told = [drain.seconds(200, now) for now in (1, 3, 8, 1_000)]
    assert told == sorted(told)
    assert told[0] == 2
    assert told[-1] == LATEST


def test_before_anything_has_drained_the_estimate_is_the_time_waited() -> None:
    drain = Drain(100)
    assert drain.seconds(50, 7) == SOONEST
    drain.begins(7)
    assert [drain.seconds(50, now) for now in (7, 12, 100)] == [SOONEST, 5, LATEST]


def test_time_between_two_drains_does_not_count() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.left(100, 1, last=True)
    drain.begins(1_000)
    drain.left(100, 1_001)
    assert abs(drain.seconds(500, 1_001) - 5) < 1e-9
