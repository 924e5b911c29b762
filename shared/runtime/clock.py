"""Clocks, which are handed to everything that needs the time."""

import time
from collections.abc import Callable
from typing import Final, Protocol

from shared.model.times import Monotonic, StoreMillis, WallSeconds

_COUNTS_SLEEP: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops CLOCK_MONOTONIC while a machine is suspended. On macOS, which lacks the other name, it goes on."""


class Clock(Protocol):
    """One clock for dates that people see, one for durations. Neither decides how long a receipt is valid: the store's
    time does.
    """

    def now(self) -> WallSeconds:
        """The date."""
        ...

    def monotonic(self) -> Monotonic:
        """Seconds since some moment; never goes back, and counts the time for which the machine was suspended."""
        ...


class SystemClock:
    """The machine's own clocks."""

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
