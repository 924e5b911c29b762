"""Owns until when receipts may be swept: a wall clock that has jumped ahead is not believed at once. Pure.

A receipt that goes too early lets an id count twice; one that stays too long costs its bytes.
"""

from typing import Final

SETTLES: Final = 600.0
"""Seconds of a process in which nothing is swept: a machine that has just booted may still be told the time."""
PACE: Final = 10
"""How many times faster than time passes a sweep goes after a clock that is ahead. A client's id is kept 8 days longer
than is promised, which is a clock that is wrong for 19 hours."""


class Horizon:
    """Asked now and then, with both clocks."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._last = 0.0
        self._horizon = 0.0

    def until(self, wall: float, monotonic: float) -> float | None:
        """What expired before may be deleted. None: nothing yet."""
        if self._begun is None:
            self._begun, self._horizon = monotonic, wall
        else:
            self._horizon = min(wall, self._horizon + PACE * (monotonic - self._last))
        self._last = monotonic
        return self._horizon if monotonic - self._begun >= SETTLES else None
