"""Reads lines of the StatsD protocol. `StatsdTally` sums the increments that are not sent to the broker yet. `Intake`
counts the lines that are lost.
"""

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, DecimalException
from itertools import islice
from typing import Final

from ingest.accept.drafts import Batch
from shared.config.lists import NameTemplate
from shared.model.words import MAX_DELTA, MAX_SUM, Lately, flaw_of_name
from shared.runtime import metrics

# Reads lines of the StatsD protocol. Pure.


MILLION: Final = 1_000_000
"""Deltas are in millionths: a sample rate such as 0.3 makes fractions of a count."""
COUNTER: Final = "c"
_CHECK: Final = "_sc|"
"""How a service check of DogStatsD begins, which has no value."""
MALFORMED: Final = "malformed"
TYPE: Final = "type"
LARGE: Final = "large"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{0,20}\.?[0-9]{0,30}(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_MOST_DIGITS: Final = 15
"""A number of this many digits is no larger than a delta may be."""


class LineError(Exception):
    """The line does not count. `why` is MALFORMED, TYPE or LARGE."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read(line: str, template: NameTemplate) -> tuple[str, int]:
    """The counter's name, and the delta in millionths, of a line such as `name:1|c|@0.1|#tag:value`. Raises
    `LineError`. The name may not be a valid one.
    """
    name, _, rest = line.partition(":")
    value, *sections = rest.split("|")
    if not sections or not value:
        raise LineError(TYPE if line.startswith(_CHECK) else MALFORMED)
    if sections[0] != COUNTER:
        raise LineError(TYPE)
    rate, tags = "", ""
    for section in sections[1:]:
        if section.startswith("@"):
            rate = section[1:]
        elif section.startswith("#"):
            tags = section[1:]
    if rate or not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        delta = _millionths(value, rate or "1")
    else:
        delta = int(value) * MILLION
    if not template.is_plain():
        name = template.name_of(name, _tags(tags))
    return name, delta


def _tags(text: str) -> dict[str, str]:
    pairs = (tag.partition(":") for tag in text.split(","))
    return {name: value for name, _, value in pairs}


def _millionths(value: str, rate: str) -> int:
    """The value divided by the sample rate, rounded to the nearest millionth."""
    if not (_NUMBER.fullmatch(value) and _NUMBER.fullmatch(rate)):
        raise LineError(MALFORMED)
    try:
        share = Decimal(rate)
        if not 0 < share <= 1:
            raise LineError(MALFORMED)
        delta = Decimal(value) / share
    except DecimalException:
        raise LineError(MALFORMED) from None
    if abs(delta) > MAX_DELTA:
        raise LineError(LARGE)
    return round(delta * MILLION)


MOST_TALLIED: Final = 10_000
"""Counters in the tally, and counters for which a fraction of a count is kept."""
_MOST: Final = MAX_SUM * MILLION


class StatsdTally:
    """Sums deltas per counter. Counts are whole: what rounding adds or leaves out is kept for what comes next."""

    def __init__(self, most_names: int = MOST_TALLIED) -> None:
        self._most_names = most_names
        self._sums: dict[str, int] = {}
        """In millionths."""
        self._lines: dict[str, int] = {}
        self._rests: Lately[str, int] = Lately(most_names)
        self.lines = 0

    def __contains__(self, name: str) -> bool:
        return name in self._sums

    def is_full(self) -> bool:
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
        """Take out the counters that have waited longest, up to this many, and up to this many lines. A counter with
        more lines gives its sum, and keeps the lines that are left.
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
                self._rests[name] = rest
            batch.sums[name] = whole
            if lines - left > 1:
                batch.counts[name] = lines - left
            batch.increments += lines - left
        self.lines -= batch.increments
        return batch


# Takes lines from packets and connections into the tally, and counts those that do not get there.


NAME: Final = "name"
PREFIX: Final = "prefix"
ROOM: Final = "room"


class Intake:
    """Reads each line once, as it comes. Nothing is kept of it but its part of a sum."""

    def __init__(self, template: NameTemplate, tally: StatsdTally, may_use: Callable[[str], bool]) -> None:
        """`may_use` says whether a counter is within the prefixes of the key."""
        self._template = template
        self._tally = tally
        self._may_use = may_use

    def take(self, data: bytes, *, strictly: bool = False) -> bool:
        """Take the lines of a packet, or of a piece of a stream. Empty ones are ignored. If `strictly`, stop behind the
        first malformed one, and return False if there is one.
        """
        lines = [line for line in data.split(b"\n") if line and not line.isspace()]
        lost: Counter[str] = Counter()
        ends = False
        for number, line in enumerate(lines, 1):
            why = self._flaw_of(line)
            if why is not None:
                lost[why] += 1
                if strictly and why == MALFORMED:
                    lines, ends = lines[:number], True
                    break
        metrics.STATSD_LINES.inc(len(lines))
        for why, number in lost.items():
            metrics.STATSD_UNCOUNTED.labels(why).inc(number)
        return not ends

    def refuse(self) -> None:
        metrics.STATSD_LINES.inc()
        metrics.STATSD_UNCOUNTED.labels(MALFORMED).inc()

    def _flaw_of(self, line: bytes) -> str | None:
        """Why the line does not count. None if it is in the tally now."""
        if b"\0" in line:
            return MALFORMED
        try:
            name, delta = read(line.decode().strip(), self._template)
        except UnicodeDecodeError:
            return MALFORMED
        except LineError as error:
            return error.why
        tally = self._tally
        if name not in tally:
            if flaw_of_name(name) is not None:
                return NAME
            if not self._may_use(name):
                return PREFIX
            if tally.is_full():
                return ROOM
        return None if tally.add(name, delta) else LARGE
