"""What each request passes that aiohttp has read: the door, then metrics, the log of requests, spans and CORS.

The fast path calls the same door. So does `Refusals`, for what is not HTTP.
"""

import asyncio
import logging
from time import perf_counter
from typing import Final
from weakref import WeakSet

from aiohttp import web

from ingest.access.callers import CALLER, NONE, Caller, credentials_in
from ingest.access.door import UNKNOWN, Door
from ingest.access.origins import shared
from ingest.access.rules import OTHER, STREAMS, needs, route_of
from ingest.access.scopes import TO_COUNT
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import target_of
from shared.http.front import Front, Handler, front_of
from shared.http.watchdog import Watchdog
from shared.runtime import metrics
from shared.runtime.traces import REQUEST, RequestContext, Traces, sampled_in

# Owns the log of requests: how many are logged, and what a line says.


NAME: Final = "countersink.requests"
"""The logger. Its lines are written whatever the log level."""
LONGEST: Final = 1_000
"""Characters of what a client sent."""
_log = logging.getLogger(NAME)
_log.setLevel(logging.INFO)


class RequestLog:
    """Logs some requests of each second."""

    def __init__(self) -> None:
        self.left = 0
        """How many more requests are logged in this second. They do not take the fast path."""
        self._each = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, each: int) -> None:
        """Log so many requests a second from now on, until `stop`."""
        self._each = each
        if each:
            self._next_second()

    def stop(self) -> None:
        self.left = 0
        if self._timer is not None:
            self._timer.cancel()

    def _next_second(self) -> None:
        self.left = self._each
        self._timer = asyncio.get_running_loop().call_later(1, self._next_second)

    def takes(self) -> bool:
        """Whether the request that has just come is logged."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


LOG: Final = RequestLog()


def note(
    method: str,
    path: str,
    status: int,
    seconds: float,
    *,
    caller: Caller | None,
    version: str = "1.1",
    agent: str = "",
) -> None:
    """Log a request that is answered now. Its query is left out: a key may stand there."""
    path = path[:LONGEST]
    http = {
        "requestMethod": method,
        "requestUrl": path,
        "status": status,
        "latency": f"{seconds:.6f}s",
        "protocol": f"HTTP/{version}",
        "userAgent": agent[:LONGEST],
        "remoteIp": caller.client if caller is not None else "",
    }
    key = caller.key.id if caller is not None and caller.key is not None else "-"
    _log.log(
        logging.INFO if status < 500 else logging.WARNING,  # noqa: PLR2004 (where our faults begin)
        "%s %s %d in %.1f ms, key %s",
        *(method, path, status, seconds * 1_000, key),
        extra={"http": http},
    )


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
