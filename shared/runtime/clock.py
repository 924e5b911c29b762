"""Clocks, which are passed to everything that needs the time; how far they are off, and whether the process stood
still.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

from shared.model.buckets import DAY, DAY_SECONDS, Monotonic, StoreMillis, WallSeconds
from shared.model.errors import StoodStillError
from shared.model.receipts import CLIENT_IDS_REMEMBERED
from shared.runtime import metrics

_COUNTS_SLEEP: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops CLOCK_MONOTONIC while a machine is suspended. On macOS, which lacks the other name, it continues."""


class Clock(Protocol):
    """One clock for dates that people see, one for durations. Neither decides how long a receipt is valid: the store's
    time does.
    """

    def now(self) -> WallSeconds: ...

    def monotonic(self) -> Monotonic:
        """Seconds since some moment; never goes back, and counts the time for which the machine was suspended."""
        ...


class SystemClock:
    def now(self) -> WallSeconds:
        return WallSeconds(time.time())

    def monotonic(self) -> Monotonic:
        return Monotonic(time.clock_gettime(_COUNTS_SLEEP))


class ToldClock:
    """Shows the time that a store tells. Until it has told any, and for durations, it shows this machine's clocks."""

    def __init__(self, own: Clock, told: Callable[[], StoreMillis]) -> None:
        """`told` returns the store's time if that is known without asking, else `NEVER`."""
        self._own = own
        self._told = told

    def now(self) -> WallSeconds:
        return WallSeconds(self._told() / 1_000) or self._own.now()

    def monotonic(self) -> Monotonic:
        return self._own.monotonic()


# Measures how far this machine's wall clock is off, and logs it once when that is far.


_log = logging.getLogger(__name__)

FAR: Final = 3_600.0
"""Seconds. A wrong clock loses no counts, because counting uses the store's time; but people see wrong times."""


class Skew:
    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._far = False

    def saw(self, ahead: float) -> None:
        """Note how many seconds the wall clock is ahead of the other one; negative if it is behind."""
        metrics.CLOCK_AHEAD.set(round(ahead, 3))
        if (abs(ahead) > FAR) == self._far:
            return
        self._far = not self._far
        if self._far:
            _log.error(
                "this machine's clock is %.1f hours %s %s clock: set it right, for example with NTP. No counts are lost"
                " or counted twice, because counting uses the store's time, but the times that people see are wrong",
                abs(ahead) / 3_600,
                "ahead of" if ahead > 0 else "behind",
                self._whose,
            )
        else:
            _log.warning("this machine's clock agrees with %s clock again", self._whose)


# Notices that the process was suspended for so long that requests it received before may be too old to count.


LONGEST: Final = (CLIENT_IDS_REMEMBERED - DAY) / 1_000
"""Seconds. A client that got no answer may have sent its increments to another process, with the same ids. While the
ids are remembered, publishing them here, too, is harmless.
"""
LOOK: Final = 60.0
"""Seconds between two looks at the clock."""


def deadline(seconds: float, clock: Clock) -> Callable[[], None]:
    """A check for what must happen within this time from now. Later it raises `StoodStillError`."""
    begun = clock.monotonic()

    def check() -> None:
        late = clock.monotonic() - begun
        if late > seconds:
            raise StoodStillError(
                f"this request took {late:.0f} s, perhaps because the process was suspended, and may be too old: send"
                " it again with the same id"
            )

    return check


class StandstillWatch:
    """Ends a process that was suspended for longer than `LONGEST`, before it publishes anything more.

    Nobody knows the age of a request that waited in a socket meanwhile. A new process holds no such requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.monotonic()

    def check(self) -> None:
        """Raise `StoodStillError` if it was. Put no await between this call and what must not happen then."""
        still = self._clock.monotonic() - self._seen
        if still > LONGEST:
            raise StoodStillError(
                f"this process was suspended for {still / DAY_SECONDS:.1f} days, so increments that it held may have"
                " been counted elsewhere: start it again; nothing that was accepted is lost"
            )

    def look(self) -> None:
        self.check()
        self._seen = self._clock.monotonic()

    async def watch(self) -> NoReturn:
        """Raise `StoodStillError` as soon as it is known."""
        while True:
            self.look()
            await asyncio.sleep(LOOK)
