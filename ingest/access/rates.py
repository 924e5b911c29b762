"""Owns how many increments a second a key may send."""

from typing import Final

from shared.model.errors import ShareError
from shared.runtime.clock import Clock

BURST: Final = 1.0
"""Seconds: a key that was idle may at once send what it may send in this time."""


class Bucket:
    """A token bucket. A batch may be larger than what is in it: the key then has to wait until it is made up for."""

    def __init__(self, key: str, rate: float, clock: Clock) -> None:
        self._key = key
        self.rate = rate
        self._clock = clock
        self._most = max(rate * BURST, 1.0)
        self._held = self._most
        self._then = clock.monotonic()

    def check(self) -> None:
        """Raise `ShareError` if not even one increment may be sent now."""
        now = self._clock.monotonic()
        self._held = min(self._held + (now - self._then) * self.rate, self._most)
        self._then = now
        if self._held < 1.0:
            raise ShareError(
                f"the key {self._key} sends more than its {self.rate:g} increments a second: wait, or send less",
                (1.0 - self._held) / self.rate,
            )

    def take(self, increments: int) -> None:
        """Count increments. Raises `ShareError` if not even one may be sent now."""
        if self._held < 1.0:
            self.check()
        self._held -= increments
