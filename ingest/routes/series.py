"""The route that reads counts by time."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson
from aiohttp import web

from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import Answer
from shared.counters.series import MOST_POINTS, SeriesReader
from shared.model.buckets import LENGTHS
from shared.model.instants import written_at
from shared.model.times import WallMillis

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6}(\d*))?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)


class SeriesRoutes:
    """Reads series of counters, if some are kept."""

    def __init__(self, reader: SeriesReader | None) -> None:
        self._reader = reader

    async def get(self, name: str, query: Query) -> web.Response:
        """GET /v1/counters/{name}/series"""
        by = query.choice("by", *LENGTHS)
        begin, end = _instant(query, "from"), _instant(query, "to")
        query.done()
        if by is None:
            raise Problem(422, f"'by' is missing: it must be {' or '.join(map(repr, LENGTHS))}", field="by")
        if self._reader is None or not self._reader.keeps(name, by):
            raise Problem(404, f"counts by {by} are not kept of this counter: see COUNTERSINK_WINDOWS")
        if begin is not None and end is not None and begin > end:
            raise Problem(422, "'from' must not be later than 'to'", field="from")
        asked = self._reader.range(name, by, begin, end)
        if asked.end - asked.begin > MOST_POINTS * LENGTHS[by]:
            raise Problem(422, f"at most {MOST_POINTS} periods in one request: choose a later 'from'", field="from")
        series = await self._reader.read(asked, only_whole=begin is None)
        points = [b'{"from":"%b","count":%d}' % (_written(when), count) for when, count in series.points.items()]
        return Answer(
            b'{"name":%b,"by":"%b","from":"%b","to":"%b","points":[%b],"total":%d,"exact":%b,"as_of":"%b"}'
            % (
                orjson.dumps(name),
                by.encode(),
                _written(series.range.begin),
                _written(series.range.end),
                b",".join(points),
                sum(series.points.values()),
                b"true" if series.exact else b"false",
                written_at(series.as_of).encode(),
            )
        )


def _written(when: WallMillis) -> bytes:
    """An instant as RFC 3339. What an answer says was in a request, or is a beginning of a period."""
    return (_EPOCH + when * _MILLI).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def _instant(query: Query, name: str) -> WallMillis | None:
    """Milliseconds since 1970, rounded up."""
    text = query.one(name)
    if text is None:
        return None
    try:
        if not (match := _INSTANT.fullmatch(text)):
            raise ValueError
        finer = timedelta(microseconds=1 if (match[1] or "").strip("0") else 0)  # Python cuts it off
        return -((_EPOCH - datetime.fromisoformat(text.upper()) - finer) // _MILLI)
    except (ValueError, OverflowError):
        form = "must be an instant as in RFC 3339, such as 2026-01-31T12:00:00Z"
        raise Problem(422, f"'{name}' {form}; in a URL, write a '+' as %2B", field=name) from None
