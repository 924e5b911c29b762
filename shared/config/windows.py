"""Reads the setting that says which counts by time are kept: `page:=hour/90d,day/2y;=day/1y`. Pure."""

from typing import Final

from shared.model.buckets import DAY, HOUR, LENGTHS, Rule, Rules
from shared.model.times import Millis
from shared.model.words import MAX_NAME_BYTES, flaw_of_size

_UNITS: Final = {"h": HOUR, "d": DAY, "y": 366 * DAY}
"""A year is 366 days, so that the same day of last year is still there."""
MOST_DAYS: Final = 36_600
_FORM: Final = "must be a prefix, '=' and what to keep, as in page:=hour/90d,day/2y"


def rules_of(text: str) -> Rules:
    """A prefix may hold `=`, but no semicolon. The empty one is for all names."""
    rules = tuple(sorted(_rule(word.strip()) for word in text.split(";"))) if text else ()
    if len({rule.prefix for rule in rules}) < len(rules):
        raise ValueError("a prefix is there twice")
    return rules


def _rule(word: str) -> Rule:
    prefix, equals, kept = word.rpartition("=")
    if not equals:
        raise ValueError(f"{word!r} {_FORM}")
    if flaw := flaw_of_size(prefix, MAX_NAME_BYTES):
        raise ValueError(f"the prefix of {word!r} {flaw}")
    periods = [_kept(one.strip()) for one in kept.split(",")]
    if len(dict(periods)) < len(periods):
        raise ValueError(f"in {word!r} a period is named twice")
    return Rule(prefix, tuple(sorted(periods)))


def _kept(word: str) -> tuple[str, Millis]:
    by, _, retention = word.partition("/")
    if by not in LENGTHS:
        raise ValueError(f"{by!r} must be {' or '.join(LENGTHS)}")
    number, unit = retention[:-1], _UNITS.get(retention[-1:], 0)
    if not (unit and number.isascii() and number.isdigit() and len(number) < 10):  # noqa: PLR2004 (more digits are too many)
        raise ValueError(f"{word!r} must say how long to keep it, in h, d or y, as in {by}/90d")
    if not LENGTHS[by] <= int(number) * unit <= MOST_DAYS * DAY:
        raise ValueError(f"{word!r} must be from one {by} to {MOST_DAYS}d")
    return by, Millis(int(number) * unit)
