"""How old what is not applied can be, by what a flusher has pulled lately. Pure: times are arguments."""

from collections import deque
from typing import Final

EVERY: Final = 1.0
"""Seconds between two reports."""
SILENCE: Final = 3.0
"""Seconds without a pull after which a flusher begins anew: what it did not look at it can't speak of."""
ALLOWANCE: Final = 5_000
"""Milliseconds by which the broker's clock and Redis's may differ."""


class Evidence:
    """The oldest of what was pulled within the last `window` seconds."""

    def __init__(self, window: float) -> None:
        self.window = window
        self._since = 0.0
        self._last = float("-inf")
        self._oldest: deque[tuple[float, int]] = deque()
        """Rising in both: an earlier one that is not older says nothing any more."""

    def pulled(self, oldest: int, now: float) -> None:
        if now - self._last > SILENCE + self.window / 2:
            self._since = now
        self._last = now
        while self._oldest and self._oldest[-1][1] >= oldest:
            self._oldest.pop()
        self._oldest.append((now, oldest))

    def report(self, now: float) -> tuple[int, int] | None:
        """For how long it has looked, and the oldest it saw within the window (both ms); None if it never has.

        For no time at all if it has not lately: what it holds may be old, and it goes on prolonging those leases.
        """
        while len(self._oldest) > 1 and self._oldest[0][0] < now - self.window:
            self._oldest.popleft()
        if not self._oldest:
            return None
        silent = now - self._last > SILENCE + self.window / 2
        return 0 if silent else int((now - self._since) * 1000), self._oldest[0][1]
