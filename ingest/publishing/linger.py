"""Decides how long increments wait for others before they are published together. Pure.

In a quiet system they do not wait. While a publish is under way they wait for its end, but at most for the linger.
Where each message costs money (`metered`), a stream of increments waits on for as long as more keep coming: the more
come, the more travel together. The wait ends when no more come, as all clients may be waiting for their answers.
"""

from typing import Final

STREAM: Final = 4
"""So many requests in one publish make a stream."""
GAP: Final = 0.005
"""A stream ends when nothing comes for so many seconds."""
STRETCH: Final = 5
"""A stream waits at most for so many lingers."""


class Pace:
    """Decides for one process when the next publish starts. It is told what happens, and asked how long to wait."""

    def __init__(self, linger: float, *, metered: bool) -> None:
        self._linger = linger
        self._longest = STRETCH * linger if metered else 0.0
        self._last = float("-inf")
        self._before = 0
        self._since = 0
        self._seen = 0

    def arrived(self) -> None:
        """Called when a request's increments have come."""
        self._since += 1

    def started(self, now: float) -> None:
        """Called when a publish of everything that had come starts."""
        self._last = now
        self._before, self._since, self._seen = self._since, 0, 0

    def streams(self, now: float) -> bool:
        return self._before >= STREAM and now - self._last < self._longest

    def delay(self, now: float, *, busy: bool) -> float:
        """Seconds to wait before calling `look`; 0 to publish at once. `busy`: a publish is under way."""
        if self.streams(now):
            return self.look(now)
        return self._linger if busy else 0.0

    def look(self, now: float) -> float:
        """Seconds to wait before calling it again; 0 to publish now."""
        ended = self._seen == self._since
        self._seen = self._since
        if ended or not self.streams(now):
            return 0.0
        return min(GAP, self._last + self._longest - now)
