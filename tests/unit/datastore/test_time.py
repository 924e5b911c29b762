"""What is known of Datastore's clock."""

from math import inf

import pytest

from shared.datastore.client import LAG_EMULATED, MOST_AHEAD, EmulatorTime, ServerTime
from shared.model.buckets import Instant, Monotonic
from tests.world.manual_clock import ManualClock


def test_what_is_in_doubt_is_known_until_something_better_is_heard() -> None:
    """Otherwise a wall clock that is days off would stand in for it while the server is away."""
    time = ServerTime()
    assert (time.bound(Monotonic(5)), time.age(Monotonic(5))) == (0, inf)
    time.hear(Instant(1_000_000_000), Monotonic(5))
    time.doubt()
    assert time.bound(Monotonic(15)) > 1_000_000_000
    assert time.age(Monotonic(15)) == inf
    time.hear(Instant(900_000_000), Monotonic(20))
    assert (time.bound(Monotonic(20)), time.age(Monotonic(20))) == (900_000_000, 0)
    time.hear(Instant(800_000_000), Monotonic(20))
    assert time.bound(Monotonic(20)) == 900_000_000


def heard(ahead: float) -> tuple[EmulatorTime, ManualClock, Instant]:
    """An emulator's time, after it has told one that is so many seconds ahead of this machine's date."""
    clock = ManualClock()
    time, told = EmulatorTime(clock), Instant(int((clock.now() + ahead) * 1_000_000))
    time.hear(told, clock.monotonic())
    return time, clock, told


def test_a_time_that_an_emulator_tells_ahead_of_the_date_is_waited_for_and_then_forgotten() -> None:
    """Else all reads from then on would ask for what has not come, or wait so long."""
    time, clock, told = heard(0.26)
    assert time.bound(clock.monotonic()) == told
    assert time.wait(told, clock.monotonic()) == pytest.approx(0.26 + LAG_EMULATED)
    for seconds in (1.0, 100.0):
        clock.turn(seconds)
        now = time.bound(clock.monotonic())
        assert now == int(clock.now() * 1_000_000)
        assert time.wait(now, clock.monotonic()) == pytest.approx(LAG_EMULATED)
        assert time.wait(told, clock.monotonic()) == 0


@pytest.mark.parametrize("ahead", [-864_000.0, 864_000.0])
def test_a_date_that_is_far_from_what_an_emulator_tells_says_nothing_of_its_clock(ahead: float) -> None:
    time, clock, told = heard(ahead)
    clock.turn(10)
    now = time.bound(clock.monotonic())
    assert now - told == pytest.approx(10_000_000, rel=0.01)
    assert time.wait(now, clock.monotonic()) == pytest.approx(LAG_EMULATED)
    assert time.wait(told, clock.monotonic()) == 0
    assert time.wait(Instant(now + 60_000_000), clock.monotonic()) == MOST_AHEAD


def test_google_waits_by_itself() -> None:
    time = ServerTime()
    time.hear(Instant(1_000_000_000), Monotonic(5))
    assert time.wait(Instant(2_000_000_000), Monotonic(5)) == 0
