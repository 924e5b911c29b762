"""Sums what has come and is not on its way to the broker yet, within limits for whatever is sent. Pure."""

from collections import OrderedDict
from itertools import islice
from typing import Final

from ingest.publishing.batch import Batch
from ingest.statsd.lines import MILLION
from shared.model.words import MAX_SUM

MOST_NAMES: Final = 10_000
"""Counters in the tally, and counters for which a fraction of a count is kept."""
_MOST: Final = MAX_SUM * MILLION


class StatsdTally:
    """Sums deltas per counter. Counts are whole: what rounding adds or leaves out is kept for what comes next."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._sums: dict[str, int] = {}
        """In millionths."""
        self._lines: dict[str, int] = {}
        self._rests: OrderedDict[str, int] = OrderedDict()
        self.lines = 0

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def is_full(self) -> bool:
        """Whether there is no room for another counter."""
        return len(self._sums) >= self._most_names

    def add(self, name: str, delta: int) -> bool:
        """Add millionths. Returns False if the sum would be too large. Only for a counter that is in it, or while it is
        not full.
        """
        there = self._sums.get(name)
        total = delta + (self._rests.get(name, 0) if there is None else there)
        if not -_MOST <= total <= _MOST:
            return False
        if there is None:
            self._rests.pop(name, None)
        self._sums[name] = total
        self._lines[name] = self._lines.get(name, 0) + 1
        self.lines += 1
        return True

    def take(self, most_names: int, most_lines: int) -> Batch:
        """Take out the counters that have waited longest, up to so many, and up to so many lines. A counter with more
        lines gives its sum, and keeps the lines that are left.
        """
        batch = Batch()
        for name in [*islice(self._sums, most_names)]:
            if batch.increments >= most_lines:
                break
            total = self._sums.pop(name)
            whole = (total + MILLION // 2) // MILLION
            rest = total - whole * MILLION
            lines = self._lines.pop(name)
            left = max(batch.increments + lines - most_lines, 0)
            if left:
                self._sums[name], self._lines[name] = rest, left
            elif rest:
                self._keep(name, rest)
            batch.sums[name] = whole
            if lines - left > 1:
                batch.counts[name] = lines - left
            batch.increments += lines - left
        self.lines -= batch.increments
        return batch

    def _keep(self, name: str, rest: int) -> None:
        if len(self._rests) >= self._most_names:
            self._rests.popitem(last=False)
        self._rests[name] = rest
