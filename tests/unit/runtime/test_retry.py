"""How long to wait: before another try, for what others may do first, and until a drain has made room."""

import pytest

from shared.model.errors import ContendedError, StorageFullError, TransientError
from shared.runtime.retry import LATEST, SOONEST, Backoff, Drain, insist, tries, within
from tests.world.manual_clock import ManualClock


class Fails:
    """A call that raises these errors, one each time, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


class Pauses(Backoff):
    """Takes no time. A clock is turned instead, if there is one."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__(1.0, 4.0, sleep=self._sleep, jitter=lambda: 1.0)
        self.waits: list[float] = []
        self._clock = clock

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self._clock is not None:
            self._clock.turn(seconds)


async def test_a_call_is_repeated_until_it_succeeds_with_growing_pauses() -> None:
    call, backoff = Fails(*[ContendedError("others were first")] * 4), Pauses()
    assert await insist(call, TransientError, tries(5), backoff) == "done"
    assert backoff.waits == [1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    await backoff.wait()
    assert backoff.waits[-1] == 1.0


async def test_the_last_error_is_raised_without_a_pause_when_the_tries_are_used_up() -> None:
    last = TransientError("the last")
    call, backoff = Fails(TransientError("the first"), last, TransientError("one more")), Pauses()
    with pytest.raises(TransientError) as raised:
        await insist(call, TransientError, tries(2), backoff)
    assert raised.value is last
    assert (call.calls, backoff.waits) == (2, [1.0])


async def test_there_is_no_other_try_when_the_time_is_over() -> None:
    clock = ManualClock()
    call, backoff = Fails(*[TransientError("away")] * 9), Pauses(clock)
    with pytest.raises(TransientError):
        await insist(call, TransientError, within(3.0, clock), backoff)
    assert (call.calls, backoff.waits) == (3, [1.0, 2.0])


@pytest.mark.parametrize("error", [StorageFullError("no room"), ValueError("a bug")])
async def test_other_errors_are_raised_at_once(error: Exception) -> None:
    call, backoff = Fails(error), Pauses()
    with pytest.raises(type(error)):
        await insist(call, TransientError, tries(5), backoff, never=StorageFullError)
    assert (call.calls, backoff.waits) == (1, [])


async def test_the_jitter_takes_up_to_half_of_a_pause() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    for jitter in (0.0, 0.5):
        await Backoff(1.0, sleep=sleep, jitter=lambda jitter=jitter: jitter).wait()  # type: ignore[misc]
    assert waits == [0.5, 0.75]


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
