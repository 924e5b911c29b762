"""The route that reads counts by time."""

from aiohttp import web

from ingest.access.caller import CALLER
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem
from ingest.http.requests import Query
from ingest.http.responses import Answer
from shared.counters.series import MOST_POINTS, SeriesReader
from shared.counters.series_text import written
from shared.model.buckets import LENGTHS
from shared.model.instants import millis_of
from shared.model.times import WallMillis


class SeriesRoutes:
    """Reads series of counters, if some are kept."""

    def __init__(self, reader: SeriesReader | None, turns: FairLock) -> None:
        """Tenants take `turns` to read."""
        self._reader = reader
        self._turns = turns

    async def get(self, request: web.BaseRequest, name: str, query: Query) -> web.Response:
        """GET /v1/counters/{name}/series"""
        by = query.choice("by", *LENGTHS)
        begin, end = _instant(query, "from"), _instant(query, "to")
        query.done()
        if by is None:
            raise Problem(422, f"'by' is missing: it must be {' or '.join(map(repr, LENGTHS))}", field="by")
        if self._reader is None or not self._reader.keeps(name, by):
            raise Problem(404, f"this counter has no counts by {by}: see COUNTERSINK_WINDOWS")
        if begin is not None and end is not None and begin > end:
            raise Problem(422, "'from' must not be later than 'to'", field="from")
        asked = self._reader.range(name, by, begin, end)
        if asked.end - asked.begin > MOST_POINTS * LENGTHS[by]:
            raise Problem(422, f"at most {MOST_POINTS} periods in one request: choose a later 'from'", field="from")
        async with self._turns.of(request[CALLER].tenant):
            series = await self._reader.read(asked, only_whole=begin is None)
        return Answer(written(series))


def _instant(query: Query, name: str) -> WallMillis | None:
    text = query.one(name)
    try:
        return None if text is None else millis_of(text)
    except ValueError as error:
        raise Problem(422, f"'{name}' {error}; in a URL, write a '+' as %2B", field=name) from None
