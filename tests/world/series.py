"""Series in tests: rules by which all is kept, and the range that has all of it."""

from typing import Final

from shared.config.lists import MOST_DAYS
from shared.counters.series import SeriesRange
from shared.model.buckets import DAY, LENGTHS, Millis, Rule, Rules

ALL_KEPT: Final[Rules] = (Rule("", tuple([(by, Millis(MOST_DAYS * DAY)) for by in LENGTHS])),)
_LATER: Final = 2 * MOST_DAYS * DAY


def everything(counter: str, by: str = "hour") -> SeriesRange:
    return SeriesRange(counter, by, 0, _LATER)
