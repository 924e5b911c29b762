"""The way of a request that aiohttp has read: the door, the handler that the table of routes names, and the answer.
Metrics, the log of requests, spans and CORS are around them. Errors become problem documents.

The fast path calls the same door. So does `refusal`, for what is not HTTP.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final
from weakref import WeakSet

from aiohttp import web
from msgspec import Struct

from ingest.access.callers import NONE, Caller, credentials_in
from ingest.access.door import ASKED, NOT_HTTP, PREFLIGHT, Door
from ingest.api.fields import Age, Body, read_body, read_parameters
from ingest.api.routes import ADMIN, OTHER, ROUTES, Route, Target, find
from ingest.http.bodies import Bodies
from ingest.http.fast_path import answered
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import COUNTERS, Call, File, Query, Reply, encode, name_of, target_of
from shared.http.answers import JSON, SECURE, line
from shared.http.front import Front, Handler, front_of
from shared.http.server import HttpServer
from shared.runtime import metrics
from shared.runtime.traces import REQUEST, RequestContext, Traces, sampled_in

# The log of requests: how many are logged, and what a line says.


NAME: Final = "countersink.requests"
"""The logger. Its lines are written whatever the log level."""
LONGEST: Final = 1_000
"""Characters of what a client sent."""
_log = logging.getLogger(NAME)
_log.setLevel(logging.INFO)


class RequestLog:
    def __init__(self) -> None:
        self.left = 0
        """How many more requests are logged in this second. They do not take the fast path."""
        self._each = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, each: int) -> None:
        """Log this many requests a second from now on, until `stop`."""
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
    target: Target, status: int, seconds: float, *, caller: Caller | None, version: str = "1.1", agent: str = ""
) -> None:
    """Log a request that is answered now. Its query is left out, since it may hold a key."""
    path = target.path[:LONGEST]
    http = {
        "requestMethod": target.method,
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
        *(target.method, path, status, seconds * 1_000, key),
        extra={"http": http},
    )


# The requests that are under way, and how long each took.


_PROBES: Final = frozenset({"/healthz", "/readyz"})


class _UnderWay:
    def __init__(self) -> None:
        self.streams = 0
        self.handled = 0
        """Requests that have a handler. Those of the fast path have none."""
        self.servers: WeakSet[HttpServer] = WeakSet()

    def requests(self) -> int:
        return self.handled + sum(server.answering() for server in self.servers)


UNDER_WAY: Final = _UnderWay()
metrics.IN_FLIGHT.set_function(UNDER_WAY.requests)
metrics.OPEN_STREAMS.set_function(lambda: UNDER_WAY.streams)


def refusal(door: Door, status: int, detail: str, front: Front) -> bytes:
    """The answer to what is not HTTP. It passes the door, too."""
    begun, logged = perf_counter(), LOG.takes()
    caller: Caller | None = None
    problem = Problem(status, detail, close=True)
    try:
        caller = door.enter(NOT_HTTP, NONE, front.peer)
    except Exception as error:
        problem = problem_of(error)
        problem.close = True
    answered(OTHER, problem.status, begun)
    if logged:
        note(NOT_HTTP, problem.status, perf_counter() - begun, caller=caller)
    return problem.written()


# Tells browsers that a page of another origin may send a request and see its answer (CORS).


REMEMBERED: Final = 600
"""Seconds for which a browser need not ask again."""
_MAY: Final = {
    "Access-Control-Allow-Headers": "Authorization, Last-Event-ID, Content-Type, Content-Encoding, Idempotency-Key, "
    "traceparent, tracestate, "
    "ce-specversion, ce-id, ce-source, ce-type, ce-time, ce-subject, ce-dataschema, ce-counter, ce-delta",
    "Access-Control-Max-Age": str(REMEMBERED),
    **SECURE,
}


async def _may_ask(request: web.BaseRequest) -> web.Response:
    """The answer to a browser that asks whether a page may send a request."""
    asked = request.headers["Access-Control-Request-Method"]
    return web.Response(status=204, headers={**_MAY, "Access-Control-Allow-Methods": asked})


def _headers(origin: str) -> Mapping[str, str]:
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "Retry-After", "Vary": "Origin"}


# The way itself.


_LIST: Final = "/openapi.json lists all paths"
_OF_COUNTERS: Final = (
    "write a '/' in the name of a counter as %2F; POST /v1/counters/NAME {\"delta\": 1} adds to it,"
    ' PUT /v1/counters/NAME {"value": 1} sets it, and DELETE /v1/counters/NAME deletes it'
)
_ON_ADMIN_PORT: Final = "what administers is on the admin port of the service (--admin-port)"
_METHODS: Final = ("GET", "POST", "PUT", "DELETE")


class Routes:
    """Makes the handlers of listeners. The paths are few, and aiohttp's router, with its regular expressions, takes
    longer than the answer.
    """

    def __init__(self, bodies: Bodies, chapters: Iterable[object], traces: Traces | None = None) -> None:
        """`chapters`: the objects whose methods are the handlers in the table."""
        self._bodies = bodies
        self._traces = traces
        bound = {of: getattr(chapter, name) for chapter in chapters for name, of in vars(type(chapter)).items()}
        self._handled: dict[Route, tuple[Callable[..., Any], type[Struct] | None, type[Body] | None]] = {
            route: (bound.get(route.handler, route.handler), route.asks(), route.body()) for route in ROUTES
        }

    def behind(self, door: Door, *, public: bool = False) -> Handler:
        """The handler of a listener with this door. If `public`, it does not serve administrators."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            target, said = find(request.method, *target_of(request)), credentials_in(request.headers)
            front, page = front_of(request), door.shares_with(target, said)
            shows = _headers(page) if page else {}
            caller: Caller | None = None
            handler: Handler
            try:
                caller = await door.admit(target, said, "" if front is None else front.peer)
                if front is not None:
                    front.tenant = caller.tenant
                    if front.is_crowded and not _has_place(target):
                        raise _full()
                if public and target.route is not None and target.route.where == ADMIN:
                    raise _elsewhere(_ON_ADMIN_PORT)
                call = Call(request, caller, self._bodies, shows)
                handler = partial(self._in_span if self._traces else self._answer, target, call)
            except Exception as error:
                handler = problem_of(error).answer
            if page and target.method == PREFLIGHT and said.asks_for in ASKED:
                handler = _may_ask
            if target.route is not None and target.route.streams:
                response = await _stream(request, handler, front)
            else:
                response = await _request(request, handler, target, caller)
            response.headers.update(shows)
            return response

        return answer

    async def _in_span(self, target: Target, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        """Answer it. A request whose `traceparent` is sampled has a span, unless it is a stream. The door is in front,
        so nobody who may not send the request can cause spans.
        """
        context = REQUEST.get()
        parent = sampled_in(request.headers.get("traceparent", ""))
        if self._traces is None or context is None or parent is None:
            return await self._answer(target, call, request)
        span = self._traces.request(parent, target.method, target.label)
        if span.trace.sampled:
            context.span = span.trace
        try:
            response = await self._answer(target, call, request)
        except BaseException as error:
            span.end(error)
            raise
        span.end(status=response.status)
        return response

    async def _answer(self, target: Target, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        try:
            query, caller = Query(target.query), call.caller
            if caller.in_query:
                query.all("key")
            is_counter = target.path.startswith(COUNTERS)
            given: list[Any] = []
            if target.parameter is not None:
                given.append(name_of(target.parameter) if is_counter else target.parameter)
            if target.route is None:
                raise _not_there(target.methods, is_counter=is_counter)
            handler, asks, body = self._handled[target.route]
            if asks is None:
                query.done()
            else:
                given.append(read_parameters(asks, query, request.headers))
            if body is not None:
                given.append(await self._bodies.read_one(request, caller, partial(read_body, body)))
            response = _answer_of(await handler(call, *given))
            if caller.public is not None and target.need.reads:
                response.headers.setdefault("Cache-Control", _kept(given, caller))
                response.headers["Vary"] = "Origin"  # a cache must not give a page an answer that lacks CORS headers
        except Exception as error:
            return problem_of(error).response()
        return response


def _kept(given: Sequence[Any], caller: Caller) -> str:
    """For how long a browser may keep what a publishable key has read: as long as the request says. Caches between us
    and browsers may keep it, too, if the key is in the URL.
    """
    age = next((one.max_age or 0.0 for one in given if isinstance(one, Age)), 0.0)
    return f"{'public' if caller.in_query else 'private'}, max-age={int(age)}" if age >= 1 else "no-store"


def _has_place(target: Target) -> bool:
    """Whether places are kept for such a request: a probe, or one that counts and does not wait to be applied."""
    return target.path in _PROBES or (target.need.counts and "wait" not in target.query)


def _full() -> Problem:
    metrics.OVERLOADED.inc()
    return Problem(503, "too many clients are connected: try again later", headers={"Retry-After": "1"}, close=True)


async def _request(
    request: web.BaseRequest, handler: Handler, target: Target, caller: Caller | None
) -> web.StreamResponse:
    begun, logged = perf_counter(), LOG.takes()
    UNDER_WAY.handled += 1
    token = REQUEST.set(RequestContext(request.headers))
    try:
        response = await handler(request)
        answered(target.label, response.status, begun)
        if logged:
            note(
                target,
                response.status,
                perf_counter() - begun,
                caller=caller,
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


def _answer_of(reply: Any) -> web.StreamResponse:
    """The answer to aiohttp's request, of what a handler returns: JSON or what becomes JSON, a `Reply`, a `File`, or a
    stream.
    """
    if isinstance(reply, web.StreamResponse):
        return reply
    if type(reply) is File:
        return web.Response(status=reply.status, body=reply.body or None, headers=reply.headers)
    body, status, headers = reply if type(reply) is Reply else (reply, 200, {})
    body = body if isinstance(body, bytes) else encode(body)
    return web.Response(status=status, body=line(body), headers={**JSON, **headers})


def _not_there(methods: Mapping[str, Route], *, is_counter: bool) -> Problem:
    if not methods:
        return _elsewhere(_OF_COUNTERS if is_counter else _LIST)
    listed = ", ".join(sorted(methods, key=_METHODS.index))
    return Problem(405, f"this path takes {listed}", headers={"Allow": listed.replace("GET", "GET, HEAD")})


def _elsewhere(instead: str = _LIST) -> Problem:
    return Problem(404, f"there is no such path; {instead}")
