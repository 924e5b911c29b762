"""What each request passes that aiohttp has read: the door, then what measures it, logs it, traces it, and shares its
answer with pages of other origins.

The fast path calls the same door. So does `Refusals`, for what is not HTTP.
"""

from time import perf_counter
from typing import Final
from weakref import WeakSet

from aiohttp import web

from ingest.access.caller import CALLER, Caller
from ingest.access.credentials import NONE, credentials_in
from ingest.access.door import UNKNOWN, Door
from ingest.access.rules import OTHER, STREAMS, needs, route_of
from ingest.access.scopes import TO_COUNT
from ingest.http.cors import shared
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import target_of
from ingest.server.request_log import LOG, note
from shared.http.front import Front, Handler, front_of
from shared.http.watchdog import Watchdog
from shared.runtime import metrics
from shared.runtime.request_context import REQUEST, RequestContext
from shared.runtime.traces import Traces, sampled_in

POST: Final = "POST /v1/counters/{name}"
GET: Final = "GET /v1/counters/{name}"
_PROBES: Final = frozenset({"/healthz", "/readyz"})


class _UnderWay:
    """How many requests are under way in this process."""

    def __init__(self) -> None:
        self.streams = 0
        self.handled = 0
        """Requests that have a handler. Those of the fast path have none."""
        self.watchdogs: WeakSet[Watchdog] = WeakSet()

    def requests(self) -> int:
        return self.handled + sum(watchdog.answering() for watchdog in self.watchdogs)


UNDER_WAY: Final = _UnderWay()
metrics.IN_FLIGHT.set_function(UNDER_WAY.requests)
metrics.OPEN_STREAMS.set_function(lambda: UNDER_WAY.streams)


def answered(route: str, status: int, *begun: float) -> None:
    """Count requests that began then, by `perf_counter`, and are answered now."""
    metrics.REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe_since(begun, perf_counter())


def entering(door: Door, routes: Handler, traces: Traces | None) -> Handler:
    """A handler in front of `routes` that lets in whom the door lets in."""
    routes = _traced(routes, traces)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        method, (path, query), said = request.method, target_of(request), credentials_in(request.headers)
        front = front_of(request)
        handler = routes
        try:
            caller = request[CALLER] = door.enter(method, path, query, said, "" if front is None else front.peer)
            if front is not None:
                front.tenant = caller.tenant
                if front.is_crowded and not _has_place(method, path, query):
                    raise _full()
        except Exception as error:
            handler = problem_of(error).answer
        if page := door.shares_with(path, said):
            handler = shared(handler, page)
        route = route_of(method, path)
        if route in STREAMS:
            return await _stream(request, handler, front)
        return await _request(request, handler, route)

    return answer


def _has_place(method: str, path: str, query: str) -> bool:
    """Whether places are kept for such a request: a probe, or one that counts and does not wait to be applied."""
    return path in _PROBES or (needs(method, path) is TO_COUNT and "wait" not in query)


def _full() -> Problem:
    metrics.OVERLOADED.inc()
    return Problem(503, "too many clients are connected: try again later", headers={"Retry-After": "1"}, close=True)


class Refusals:
    """Answers what is not HTTP. It passes the door, too."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def __call__(self, status: int, detail: str, front: Front) -> bytes:
        begun, logged = perf_counter(), LOG.takes()
        caller: Caller | None = None
        problem = Problem(status, detail, close=True)
        try:
            caller = self._door.enter(UNKNOWN, "/", "", NONE, front.peer)
        except Exception as error:
            problem = problem_of(error)
            problem.close = True
        answered(OTHER, problem.status, begun)
        if logged:
            note(UNKNOWN, "/", problem.status, perf_counter() - begun, caller=caller)
        return problem.written()


async def _request(request: web.BaseRequest, handler: Handler, route: str) -> web.StreamResponse:
    begun, logged = perf_counter(), LOG.takes()
    UNDER_WAY.handled += 1
    token = REQUEST.set(RequestContext(request.headers))
    try:
        response = await handler(request)
        answered(route, response.status, begun)
        if logged:
            note(
                request.method,
                target_of(request)[0],
                response.status,
                perf_counter() - begun,
                caller=request.get(CALLER),
                version=f"{request.version.major}.{request.version.minor}",
                agent=request.headers.get("User-Agent", ""),
            )
        return response
    finally:
        UNDER_WAY.handled -= 1
        REQUEST.reset(token)


async def _stream(request: web.BaseRequest, handler: Handler, front: Front | None) -> web.StreamResponse:
    UNDER_WAY.streams += 1
    if front is not None:
        front.is_stream = True
    try:
        return await handler(request)
    finally:
        UNDER_WAY.streams -= 1


def _traced(handler: Handler, traces: Traces | None) -> Handler:
    """The same handler. A request whose `traceparent` is sampled has a span, unless it is a stream. The door is in
    front of it, so nobody can cause spans who may not send the request.
    """
    if traces is None:
        return handler

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        context = REQUEST.get()
        parent = sampled_in(request.headers.get("traceparent", ""))
        if context is None or parent is None:
            return await handler(request)
        span = traces.request(parent, request.method, route_of(request.method, target_of(request)[0]))
        if span.trace.sampled:
            context.span = span.trace
        try:
            response = await handler(request)
        except BaseException as error:
            span.end(error)
            raise
        span.end(status=response.status)
        return response

    return answer
