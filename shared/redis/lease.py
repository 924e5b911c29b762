"""The lease of a member, by the clocks of both sides: when it surely holds no more. Pure: times are arguments."""

from dataclasses import dataclass
from typing import Final

DRIFT: Final = 0.01
"""Either clock may run faster than the other by so much."""
MARGIN: Final = 0.1
"""Seconds."""


@dataclass(slots=True)
class Lease:
    """Ends at an instant of Redis's clock that this side names, so no request that is delayed can make it longer.

    `seconds`: how long each renewal is for.
    """

    seconds: float
    _until: int = 0
    _heard: int = 0
    """Redis's clock in a response (ms)…"""
    _at: float = 0.0
    """…and ours when it had come."""

    def hear(self, now: int, at: float) -> None:
        """A response of that time came; `at` is monotonic."""
        self._heard, self._at = now, at

    def ask(self, at: float) -> int:
        """Until when a request that is sent now may make it last. It may be granted, whatever becomes of the answer."""
        until = self._heard + int((at - self._at + self.seconds) * 1000)
        self._until = max(self._until, until)
        return until

    def refused(self, before: int) -> None:
        """The last request was surely not granted."""
        self._until = before

    @property
    def until(self) -> int:
        return self._until

    def over(self, at: float) -> float:
        """Seconds until it has surely run out. As much has passed on Redis's clock as on ours, but for drift."""
        left = (self._until - self._heard) / 1000
        return max(0.0, left * (1 + DRIFT) + MARGIN - (at - self._at)) if self._until else 0.0
