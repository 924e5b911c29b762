"""Owns which handler answers which request. Errors of handlers become problem documents."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest import openapi
from ingest.access.caller import CALLER
from ingest.access.rules import COUNTERS, JOBS, RECEIPTS, SCRIPT, TO_ADMINISTER, needs
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import Query, name_of, target_of
from ingest.http.responses import JSON, SECURE, line
from ingest.routes.console import console
from ingest.routes.counters import ReadRoutes
from ingest.routes.dead_letters import DeadLetterRoutes
from ingest.routes.events import EventRoutes
from ingest.routes.fleet import FleetRoute
from ingest.routes.increments import IncrementRoutes
from ingest.routes.jobs import JobRoutes
from ingest.routes.pictures import PictureRoutes
from ingest.routes.script import ScriptRoute
from ingest.routes.series import SeriesRoutes
from ingest.routes.set_counter import SetRoutes
from ingest.routes.shards import ShardRoutes
from ingest.routes.watch import WatchRoutes
from shared.counters.setter import DELETE, RESET, SET
from shared.runtime import metrics

Answer = Awaitable[web.StreamResponse]
Handler = Callable[[web.BaseRequest, Query], Answer]
Ready = Callable[[], Awaitable[None]]
"""Raises the error that an increment would be answered with now."""


class Routes:
    """The handler of all requests. It compares strings: the paths are few, and aiohttp's router, with its regular
    expressions, takes longer than the answer.
    """

    def __init__(
        self,
        writes: IncrementRoutes,
        events: EventRoutes,
        reads: ReadRoutes,
        *,
        shards: ShardRoutes,
        sets: SetRoutes,
        jobs: JobRoutes,
        letters: DeadLetterRoutes,
        watch: WatchRoutes,
        pictures: PictureRoutes,
        series: SeriesRoutes,
        fleet: FleetRoute,
        ready: Ready,
        version: str,
    ) -> None:
        self._scrapes = FairLock()
        self._writes = writes
        self._reads = reads
        self._shards = shards
        self._sets = sets
        self._jobs = jobs
        self._watch = watch
        self._pictures = pictures
        self._series = series
        self._ready = ready
        self._fixed: dict[str, dict[str, Handler]] = {
            "/v1/increments": {"POST": writes.many},
            "/v1/events": {"POST": events.post},
            "/v1/jobs": {"GET": jobs.latest, "POST": jobs.post},
            "/v1/dead-letters": {"GET": letters.page},
            "/v1/dead-letters/replay": {"POST": letters.replay},
            "/v1/dead-letters/drop": {"POST": letters.drop},
            "/v1/counters": {"GET": reads.several},
            "/v1/watch": {"GET": watch.several},
            "/v1/fleet": {"GET": fleet.get},
            SCRIPT: {"GET": ScriptRoute().get},
            "/healthz": {"GET": _says(b'{"status":"alive"}')},
            "/readyz": {"GET": self._readyz},
            "/metrics": {"GET": self._metrics},
            "/version": {"GET": _says(orjson.dumps({"version": version}))},
            "/openapi.json": {"GET": _says(openapi.document(version))},
        }
        self._files = console()

    async def public(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler of a listener that does not serve administrators."""
        path, _ = target_of(request)
        if _is_for_admins(request.method, path):
            return _elsewhere().response()
        return await self(request)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._dispatch(request)
        except Exception as error:
            return problem_of(error).response()

    def _dispatch(self, request: web.BaseRequest) -> Answer:
        path, text = target_of(request)
        method = request.method
        if method == "HEAD":
            method = "GET"
        query = Query(text)
        if request[CALLER].in_query:
            query.all("key")
        if path.startswith(COUNTERS):
            return self._counter(request, method, path[len(COUNTERS) :], query)
        if path.startswith(RECEIPTS):
            _allow(method, "GET")
            return self._reads.receipt(request, path[len(RECEIPTS) :], query)
        if path.startswith(JOBS):
            return self._job(request, method, path[len(JOBS) :], query)
        handlers = self._fixed.get(path)
        if handlers is None and path in self._files:
            handlers = {"GET": self._files[path]}
        if handlers is None:
            raise _elsewhere()
        _allow(method, *handlers)
        return handlers[method](request, query)

    def _counter(self, request: web.BaseRequest, method: str, rest: str, query: Query) -> Answer:
        segment, slash, part = rest.partition("/")
        name = name_of(segment)
        if not slash:
            _allow(method, "GET", "POST", "PUT", "DELETE")
            if method == "POST":
                return self._writes.one(request, name, query)
            if method == "GET":
                return self._reads.one(name, query)
            return self._sets.change(request, name, query, SET if method == "PUT" else DELETE)
        if part == "reset":
            _allow(method, "POST")
            return self._sets.change(request, name, query, RESET)
        if part == "shards":
            _allow(method, "PUT")
            return self._shards.put(request, name, query)
        if part == "watch":
            _allow(method, "GET")
            return self._watch.one(request, name, query)
        if part == "pixel.gif":
            _allow(method, "GET")
            return self._pictures.pixel(request, name, query)
        if part in {"badge.svg", "badge.json"}:
            _allow(method, "GET")
            return self._pictures.badge(request, name, query, drawn=part == "badge.svg")
        if part == "series":
            _allow(method, "GET")
            return self._series.get(request, name, query)
        raise Problem(404, "there is no such path; write a '/' in a counter's name as %2F")

    def _job(self, request: web.BaseRequest, method: str, rest: str, query: Query) -> Answer:
        if "/" in rest:
            _allow(method, "GET")
        else:
            _allow(method, "GET", "DELETE")
        return self._jobs.get(request, rest, query) if method == "GET" else self._jobs.stop(request, rest, query)

    async def _readyz(self, _: web.BaseRequest, __: Query) -> web.Response:
        await self._ready()
        return web.Response(body=b'{"status":"ready"}\n', headers=JSON)

    async def _metrics(self, request: web.BaseRequest, _: Query) -> web.Response:
        async with self._scrapes.of(request[CALLER].tenant):
            body = generate_latest(metrics.REGISTRY)
            await asyncio.sleep(0)  # others want a turn of the event loop
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST, **SECURE})


def _elsewhere() -> Problem:
    return Problem(404, "there is no such path; /openapi.json lists all paths")


def _is_for_admins(method: str, path: str) -> bool:
    """Whether only administrators send the request, or it reads metrics."""
    return path == "/metrics" or needs(method, path) is TO_ADMINISTER


def _says(body: bytes) -> Handler:
    """A handler that always answers with this JSON."""

    async def say(_: web.BaseRequest, __: Query) -> web.Response:
        return web.Response(body=line(body), headers=JSON)

    return say


def _allow(method: str, *methods: str) -> None:
    if method not in methods:
        allowed = ", ".join(methods).replace("GET", "GET, HEAD")
        raise Problem(405, f"this path takes {', '.join(methods)}", headers={"Allow": allowed})
