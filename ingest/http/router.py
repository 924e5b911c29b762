"""The router: from a request of aiohttp to the handler that the table of routes names, and from its reply to an answer.
Errors become problem documents.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from aiohttp import web
from msgspec import Struct

from ingest.access import rules
from ingest.access.callers import CALLER
from ingest.access.origins import COUNTERS
from ingest.api.call import Call, Reply, encode
from ingest.api.fields import Body, read_body, read_parameters
from ingest.api.routes import ADMIN, ROUTES, split
from ingest.http.bodies import Bodies
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import Query, name_of, target_of
from ingest.http.responses import Answer, line

_LIST: Final = "/openapi.json lists all paths"
_METHODS: Final = ("GET", "POST", "PUT", "DELETE")


class _Handled(NamedTuple):
    """What answers a route, and the structs that it gets."""

    handler: Callable[..., Any]
    asks: type[Struct] | None
    body: type[Body] | None


class Routes:
    """The handler of all requests. It compares strings: the paths are few, and aiohttp's router, with its regular
    expressions, takes longer than the answer.
    """

    def __init__(self, bodies: Bodies, chapters: Iterable[object]) -> None:
        """`chapters`: the objects whose methods are the handlers in the table."""
        self._bodies = bodies
        self._paths: dict[str, dict[str, _Handled]] = {}
        bound = {of: getattr(chapter, name) for chapter in chapters for name, of in vars(type(chapter)).items()}
        for route in sorted(ROUTES, key=lambda route: _METHODS.index(route.method)):
            handler = bound.get(route.handler, route.handler)
            self._paths.setdefault(route.path, {})[route.method] = _Handled(handler, route.asks(), route.body())

    async def public(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler of a listener that does not serve administrators."""
        route = rules.find(request.method, target_of(request)[0])
        if route is not None and route.where == ADMIN:
            return _elsewhere().response()
        return await self(request)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            path, text = target_of(request)
            query, caller = Query(text), request[CALLER]
            if caller.in_query:
                query.all("key")
            template, parameter = split(path)
            is_counter = path.startswith(COUNTERS)
            given: list[Any] = []
            if parameter is not None:
                given.append(name_of(parameter) if is_counter else parameter)
            methods = self._paths.get(template)
            if methods is None:
                raise _elsewhere("write a '/' in a counter's name as %2F" if is_counter else _LIST)
            found = methods.get("GET" if request.method == "HEAD" else request.method)
            if found is None:
                raise _not_allowed(", ".join(methods))
            call = Call(request, caller, self._bodies)
            if found.asks is None:
                query.done()
            else:
                given.append(read_parameters(found.asks, query, request.headers))
            if found.body is not None:
                given.append(await call.read_one(partial(read_body, found.body)))
            return _answer_of(await found.handler(call, *given))
        except Exception as error:
            return problem_of(error).response()


def _answer_of(reply: Any) -> web.StreamResponse:
    """The answer to aiohttp's request, of what a handler returns: JSON or what becomes JSON, a `Reply`, or a stream."""
    if type(reply) is Reply:
        body, status, headers = reply
        if headers is None:
            return Answer(body if isinstance(body, bytes) else encode(body), status)
        written = (body or None) if isinstance(body, bytes) else line(encode(body))
        return web.Response(status=status, body=written, headers=headers)
    if isinstance(reply, web.StreamResponse):
        return reply
    return Answer(reply if isinstance(reply, bytes) else encode(reply))


def _not_allowed(methods: str) -> Problem:
    return Problem(405, f"this path takes {methods}", headers={"Allow": methods.replace("GET", "GET, HEAD")})


def _elsewhere(instead: str = _LIST) -> Problem:
    return Problem(404, f"there is no such path; {instead}")
