"""Retries: what is tried again, how often, and how long the pauses are."""

import pytest

from shared.model.errors import ContendedError, StorageFullError, TransientError
from shared.runtime.retry import Backoff, insist, tries, within
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
