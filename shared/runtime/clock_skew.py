"""Owns how far this machine's wall clock is from a clock that is right, and says it once when that is far."""

import logging
from typing import Final

from shared.runtime import metrics

_log = logging.getLogger(__name__)

FAR: Final = 3_600.0
"""Seconds. Counting goes by the store's time, so that a wrong clock loses nothing; but people see wrong times."""


class Skew:
    """One for each clock that this machine's is compared with."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._far = False

    def saw(self, ahead: float) -> None:
        """The wall clock is so many seconds ahead of the other one, or behind it if that is negative."""
        metrics.CLOCK_AHEAD.set(round(ahead, 3))
        if (abs(ahead) > FAR) == self._far:
            return
        self._far = not self._far
        if self._far:
            _log.error(
                "this machine's clock is %.1f hours %s %s clock: set it right, best by NTP; nothing is lost or counted"
                " twice by it, as ages go by the store's time, but the times that people see are wrong",
                abs(ahead) / 3_600,
                "ahead of" if ahead > 0 else "behind",
                self._whose,
            )
        else:
            _log.warning("this machine's clock agrees with %s clock again", self._whose)
