"""How instants are written for people and for other programs: RFC 3339, in UTC, with milliseconds. Pure."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from shared.model.times import WallMillis

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6}(\d*))?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLI
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLI


def written(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache
def written_at(seconds: float) -> str:
    """`seconds`: since 1970. Many counters of a list are of one instant."""
    return written(datetime.fromtimestamp(seconds, UTC))


def datetime_of(when: WallMillis) -> datetime:
    """Exact for each instant that `millis_of` returns."""
    return _EPOCH + when * _MILLI


def written_millis(when: WallMillis) -> str:
    return written(datetime_of(when))


def written_second(when: WallMillis) -> bytes:
    """A whole second, without a fraction."""
    return datetime_of(when).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def millis_of(text: str) -> WallMillis:
    """Milliseconds since 1970, rounded up, at least the first of the year 1, and at most the last of 9999. Raises
    `ValueError` if the text is no instant of RFC 3339.
    """
    try:
        if not (found := _INSTANT.fullmatch(text)):
            raise ValueError
        finer = timedelta(microseconds=1 if (found[1] or "").strip("0") else 0)  # Python drops it
        when = -((_EPOCH - datetime.fromisoformat(text.upper()) - finer) // _MILLI)
    except (ValueError, OverflowError):
        raise ValueError("must be an instant as in RFC 3339, such as 2026-01-31T12:00:00Z") from None
    return min(max(when, _FIRST), _LAST)
