"""When it is worth while to come back."""

from shared.runtime.drain_rate import LATEST, SOONEST, Drain


def test_what_goes_steadily_says_how_long_more_will_take() -> None:
    drain = Drain(100)
    drain.begins(0)
    for second in range(1, 50):
        drain.went(20, second)
    assert abs(drain.seconds(200, 49) - 10) < 1e-9
    assert drain.seconds(-5, 49) == SOONEST
    assert drain.seconds(1, 49) == SOONEST
    assert drain.seconds(10_000, 49) == LATEST


def test_what_goes_faster_is_believed_when_as_much_has_gone_as_is_remembered() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.went(10, 100)
    slow = drain.seconds(100, 100)
    drain.went(1_000, 101)
    assert drain.seconds(100, 101) < slow / 10


def test_while_nothing_goes_it_takes_longer_and_longer() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.went(100, 1)
    told = [drain.seconds(200, now) for now in (1, 3, 8, 1_000)]
    assert told == sorted(told)
    assert told[0] == 2
    assert told[-1] == LATEST


def test_before_anything_went_it_is_as_long_again() -> None:
    drain = Drain(100)
    assert drain.seconds(50, 7) == SOONEST
    drain.begins(7)
    assert [drain.seconds(50, now) for now in (7, 12, 100)] == [SOONEST, 5, LATEST]


def test_the_time_between_is_not_counted() -> None:
    drain = Drain(100)
    drain.begins(0)
    drain.went(100, 1, last=True)
    drain.begins(1_000)
    drain.went(100, 1_001)
    assert abs(drain.seconds(500, 1_001) - 5) < 1e-9
