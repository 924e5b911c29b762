"""Reads lines of the StatsD protocol. Pure."""

import re
from decimal import Decimal, DecimalException
from typing import Final

from shared.config.name_template import NameTemplate
from shared.model.words import MAX_DELTA

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
"""A number of so many digits is no larger than a delta may be."""


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
