"""How long increments wait for company before they are published. Pure: told what happens, asked what is to be done.

A quiet system waits for nothing. While a publish is under way, what arrives waits for its end, for the linger at most.
Where each envelope is paid for, a stream waits on, as long as more keeps coming: so the more comes, the more travels
together; and clients that wait for their answers, so that nobody else comes, are not made to wait in vain.
"""

from typing import Final

STREAM: Final = 4
"""So many in the last publish are a stream."""
GAP: Final = 0.005
"""Seconds without anybody are its end."""
STRETCH: Final = 5
"""A stream waits so many lingers at most."""


class Pace:
    """Of one process."""

    def __init__(self, linger: float, *, metered: bool) -> None:
        self._linger = linger
        self._longest = STRETCH * linger if metered else 0.0
        self._last = float("-inf")
        self._before = 0
        self._since = 0
        self._seen = 0

    def arrived(self) -> None:
        """A request's increments."""
        self._since += 1

    def started(self, now: float) -> None:
        """A publish of all that had arrived."""
        self._last = now
        self._before, self._since, self._seen = self._since, 0, 0

    def streams(self, now: float) -> bool:
        return self._before >= STREAM and now - self._last < self._longest

    def delay(self, now: float, *, busy: bool) -> float:
        """Seconds until the next look at it; 0 to start at once. `busy`: a publish is under way."""
        if self.streams(now):
            return self.look(now)
        return self._linger if busy else 0.0

    def look(self, now: float) -> float:
        """The same, after the wait."""
        ended = self._seen == self._since
        self._seen = self._since
        if ended or not self.streams(now):
            return 0.0
        return min(GAP, self._last + self._longest - now)
