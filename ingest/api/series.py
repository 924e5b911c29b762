"""Reading counts by time."""

from typing import Annotated

from msgspec import Meta, Struct, field

from ingest.api.fields import By, Instant, Json, Name, Read, When
from ingest.http.problems import Problem
from ingest.http.requests import Call, Query
from shared.counters.series import MOST_POINTS, SeriesReader, written
from shared.http.shares import FairLock
from shared.model.buckets import LENGTHS, WallMillis, millis_of


def _by(query: Query, name: str) -> str:
    by = query.choice(name, *LENGTHS)
    if by is None:
        raise Problem(422, f"'by' is missing: it must be {' or '.join(map(repr, LENGTHS))}", field="by")
    return by


class SeriesAsks(Struct):
    by: Annotated[By, Read(_by)]
    """The length of a period. Periods are those of UTC."""
    begin: When | None = field(name="from", default=None)
    """The start of the range. Without it: the oldest period that is kept completely, at most {MOST_POINTS} periods
    before the end.
    """
    end: When | None = field(name="to", default=None)
    """The end of the range, which has at most {MOST_POINTS} periods. Without it: now."""


Second = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:00Z$")]


class Point(Json):
    begin: Second = field(name="from")
    count: int


class Series(Json):
    """The counts of the periods that begin in the range."""

    name: Name
    by: By
    begin: Second = field(name="from")
    """The start of the range: your `from`, or later if older periods are not kept."""
    end: Second = field(name="to")
    """The end of the range, which is not part of it."""
    points: Annotated[list[Point], Meta(max_length=MOST_POINTS)]
    """In order of time. A period without a point has the count 0."""
    total: int
    """The sum of the points."""
    exact: bool
    """Whether each point has all that was accepted in its period before the read, and those of periods that are over
    are final.
    """
    as_of: Instant


class SeriesRoutes:
    def __init__(self, reader: SeriesReader | None, turns: FairLock) -> None:
        """Tenants take `turns` to read."""
        self._reader = reader
        self._turns = turns

    async def get_series(self, call: Call, name: str, asks: SeriesAsks) -> Annotated[bytes, Series]:
        """Read what was counted in each minute, hour or day"""
        by, begin, end = asks.by, _instant(asks.begin, "from"), _instant(asks.end, "to")
        if self._reader is None or not self._reader.keeps(name, by):
            raise Problem(404, f"this counter has no counts by {by}: see COUNTERSINK_WINDOWS")
        if begin is not None and end is not None and begin > end:
            raise Problem(422, "'from' must not be later than 'to'", field="from")
        asked = self._reader.range(name, by, begin, end)
        if asked.end - asked.begin > MOST_POINTS * LENGTHS[by]:
            raise Problem(422, f"at most {MOST_POINTS} periods in one request: choose a later 'from'", field="from")
        async with call.caller.turn(self._turns):
            return written(await self._reader.read(asked, only_whole=begin is None))


def _instant(text: str | None, name: str) -> WallMillis | None:
    try:
        return None if text is None else millis_of(text)
    except ValueError as error:
        raise Problem(422, f"'{name}' {error}; in a URL, write a '+' as %2B", field=name) from None
