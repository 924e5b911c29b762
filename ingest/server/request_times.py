"""Owns what metrics say about requests, how long they take and how many are under way, and tells the log of them."""

from time import perf_counter
from typing import Final
from weakref import WeakSet

from aiohttp import web

from ingest.access.rules import STREAMS, route_of
from ingest.server.aiohttp_connection import Handler
from ingest.server.connection_limit import ConnectionLimit
from ingest.server.request_log import LOG, note
from shared.runtime import metrics
from shared.runtime.request_context import REQUEST, RequestContext

POST: Final = "POST /v1/counters/{name}"
GET: Final = "GET /v1/counters/{name}"


class _UnderWay:
    """How many requests are under way in this process."""

    def __init__(self) -> None:
        self.streams = 0
        self.handled = 0
        """Requests that have a handler. Those of the fast path have none."""
        self.limits: WeakSet[ConnectionLimit] = WeakSet()

    def requests(self) -> int:
        return self.handled + sum(limit.busy() for limit in self.limits)


UNDER_WAY: Final = _UnderWay()
metrics.IN_FLIGHT.set_function(UNDER_WAY.requests)
metrics.OPEN_STREAMS.set_function(lambda: UNDER_WAY.streams)


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def timed(handler: Handler, method: str, path: str) -> Handler:
    """The same handler, whose requests are counted."""
    route = route_of(method, path)
    return _stream(handler) if route in STREAMS else _request(handler, route)


def _request(handler: Handler, route: str) -> Handler:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        begun, logged = perf_counter(), LOG.takes()
        UNDER_WAY.handled += 1
        token = REQUEST.set(RequestContext(request.headers))
        try:
            response = await handler(request)
            answered(route, response.status, begun)
            if logged:
                note(request, response.status, perf_counter() - begun)
            return response
        finally:
            UNDER_WAY.handled -= 1
            REQUEST.reset(token)

    return answer


def _stream(handler: Handler) -> Handler:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        UNDER_WAY.streams += 1
        try:
            return await handler(request)
        finally:
            UNDER_WAY.streams -= 1

    return answer
