"""Measures how far this machine's wall clock is off, and logs it once when that is far."""

import logging
from typing import Final

from shared.runtime import metrics

_log = logging.getLogger(__name__)

FAR: Final = 3_600.0
"""Seconds. A wrong clock loses no counts, because counting uses the store's time; but people see wrong times."""


class Skew:
    """Compares this machine's clock with another one."""

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
