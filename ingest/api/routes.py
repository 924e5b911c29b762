"""The table of routes. A row says all that a route is: who may use it, which handler answers, what it takes and gives.

From this table follow the router (ingest/http/router.py), what keys may do (`Target.need`), and the OpenAPI document
(openapi.py), which takes summaries and descriptions from the docstrings of handlers and structs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, get_origin, get_type_hints

from msgspec import Struct

from ingest.access.keys import ANY, OPEN, TO_ADMINISTER, TO_COUNT, TO_FOLLOW, TO_READ, Need
from ingest.api import pages
from ingest.api.counters import ChangeRoutes, ReadRoutes
from ingest.api.dead_letters import DeadLetterRoutes
from ingest.api.events import BODY, MODES, EventRoutes
from ingest.api.fields import Body, Schema
from ingest.api.fleet import FleetRoute
from ingest.api.increments import BATCH_BODY, ONE_BODY, Accepted, Applied, BatchAccepted, IncrementRoutes
from ingest.api.jobs import Job, JobRoutes
from ingest.api.pages import ServiceRoutes
from ingest.api.pictures import BADGE_AGE, BadgeData, PictureRoutes
from ingest.api.receipts import ReceiptRoutes
from ingest.api.series import SeriesRoutes
from ingest.api.watch import WatchRoutes

PUBLIC: Final = "public"
ADMIN: Final = "admin"
"""The listener of `--admin-port`. If there is one, the public listener answers 404."""


class Gives(NamedTuple):
    what: type[Struct] | Schema
    description: str = ""
    """If it is empty, the docstring of the struct describes the answer, or else the summary of the route does."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = {}
    """What its headers say, if each such answer has them."""
    sometimes: Mapping[str, str] = {}
    """What the headers say that only some such answers have."""


class Takes(NamedTuple):
    content: Mapping[str, Schema]
    """The schema of each media type."""
    required: bool = True
    description: str = ""


@dataclass(frozen=True, eq=False)
class Route:
    """A row of the table. Its handler's name makes the operationId, and its docstring the summary and the description.

    The handler's signature says what it gets: the `Call`; the parameter of the path; the other parameters, a struct;
    and the fields of a JSON body, a `Body`. It returns a struct, or `Annotated[bytes, …]` with the struct in the bytes.
    """

    method: str
    path: str
    need: Need
    """A key needs one of these scopes."""
    handler: Callable[..., Any]
    fails: tuple[int, ...] = ()
    """The statuses of its errors, but for those that a wrong key, URL or method gets."""
    gives: Mapping[int, Gives] = field(default_factory=dict)
    """The good answers, by status, if the handler's type does not say it."""
    takes: Takes | None = None
    """The body, if the handler reads it itself."""
    where: str = PUBLIC
    tag: str = ""
    """Its chapter in the document, which leaves out routes without one."""

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}" if self.tag else "GET /console"

    @property
    def is_for_pages(self) -> bool:
        """Whether pages of other sites may send it, with a publishable key."""
        return self.tag in _FOR_PAGES and (self.need.counts or self.need.reads)

    @property
    def streams(self) -> bool:
        """Whether the answer continues until the client leaves."""
        return self.gives is _STREAM

    def asks(self) -> type[Struct] | None:
        """The parameters in the query and in headers. None: the query must be empty."""
        return next((one for one in _structs(self.handler) if not issubclass(one, Body)), None)

    def body(self) -> type[Body] | None:
        return next((one for one in _structs(self.handler) if issubclass(one, Body)), None)

    def answers(self) -> Mapping[int, Gives]:
        if self.gives:
            return self.gives
        found = get_type_hints(self.handler, include_extras=True)["return"]
        return {200: Gives(found.__metadata__[0] if get_origin(found) is Annotated else found)}


@cache
def _structs(handler: Callable[..., Any]) -> list[type[Struct]]:
    hints = get_type_hints(handler)
    return [hint for name, hint in hints.items() if name != "return" and issubclass(hint, Struct)]


_FOR_PAGES: Final = frozenset({"count", "read"})
"""Chapters."""
TEXT: Final[Schema] = {"type": "string"}
READS: Final = (422, 503, 507)
SHOWS: Final = (*READS, 429)
"""The errors of what publishable keys may read, which have rates."""
WRITES: Final = (408, 413, 415, 422, 429, 503, 507)
_TAG: Final = {"ETag": "Send it as `If-None-Match`."}
_SAME: Final = {304: Gives({}, "The client has it: its `If-None-Match` names the `ETag`.", "")}
_KEPT: Final = f"The badge. It may be kept for {BADGE_AGE} seconds."
_BADGE: Final = {200: Gives(TEXT, _KEPT, "image/svg+xml", _TAG), **_SAME}
_BADGE_DATA: Final = {200: Gives(BadgeData, _KEPT, headers=_TAG), **_SAME}
_PIXEL: Final = {200: Gives({}, "It is durable, and will be counted exactly once.", "image/gif")}
SCRIPT: Final = "/countersink.js"
_SCRIPT: Final = {200: Gives(TEXT, "JavaScript. It may be kept for an hour.", "text/javascript", _TAG), **_SAME}
_PAGE: Final = {200: Gives(TEXT, "The page.", "text/html"), 304: Gives({}, "The page has not changed.", "")}
_STREAM: Final = {
    200: Gives(
        TEXT,
        "Server-sent events that do not end. The data of each is a counter as JSON: first all current values, then each"
        " value that changes. A client that reads slowly gets the newest value and not those before. A comment comes at"
        " least every 10 seconds. An event `problem`, with a problem document, says why the stream ends.",
        "text/event-stream",
    )
}
_COUNTED: Final = {200: Gives(Applied), 202: Gives(Accepted)}
_BATCH: Final = {
    200: Gives(BatchAccepted, "All accepted increments are in the store."),
    202: Gives(BatchAccepted, "The accepted increments are durable, and will be counted exactly once."),
}
_LOCATION: Final = {"Location": "Where the job is."}
_STARTED: Final = {
    200: Gives(Job, "A job with this id was started before: its current state.", headers=_LOCATION),
    202: Gives(
        Job,
        "The job has begun. Flushers will visit each counter that was counted before, once. They may also visit"
        " counters that are created meanwhile.",
        headers=_LOCATION,
    ),
}
_STOPPED: Final = {
    200: Gives(
        Job,
        "The job. It has `failed` unless it had ended before; an export has `failed` in any case. Flushers that work on"
        " it may take 10 seconds to notice.",
    )
}
_EXPORT: Final = {
    200: Gives(
        TEXT,
        "A line of JSON for each counter. For an export: its `name`, and its `value`, exact at an instant while the job"
        " ran. If the job has `by`, the line is a `Series` with the counter's `value`. For a job of kind `reset`,"
        " `delete` or `expire`: its `name`, and the value `before`, which is exactly what the job took away. Such a job"
        " also has a result if it failed or was stopped.",
        "application/x-ndjson",
        sometimes={
            "Next-Page-Token": "Send it as `page_token`, even if this page has no lines. The last page has none."
        },
    )
}
_METRICS: Final = {200: Gives(TEXT, media_type="text/plain")}
_ANYTHING: Final = {200: Gives({"type": "object"})}
_ONE, _MANY, _EVENTS = Takes(ONE_BODY, required=False), Takes(BATCH_BODY), Takes(BODY, description=MODES)

TABLE: Final[dict[tuple[str, str], list[Route]]] = {
    ("count", PUBLIC): [
        Route("POST", "/v1/counters/{name}", TO_COUNT, IncrementRoutes.increment, WRITES, _COUNTED, _ONE),
        Route("POST", "/v1/increments", TO_COUNT, IncrementRoutes.increment_many, WRITES, _BATCH, _MANY),
        Route("POST", "/v1/events", TO_COUNT, EventRoutes.count_events, WRITES, _BATCH, _EVENTS),
        Route("GET", "/v1/counters/{name}/pixel.gif", TO_COUNT, PictureRoutes.get_pixel, (*READS, 404, 429), _PIXEL),
        Route("GET", SCRIPT, OPEN, pages.get_script, (422,), _SCRIPT),
    ],
    ("read", PUBLIC): [
        Route("GET", "/v1/counters/{name}", TO_READ, ReadRoutes.get_counter, SHOWS),
        Route("GET", "/v1/counters", TO_READ, ReadRoutes.list_counters, SHOWS),
        Route("GET", "/v1/counters/{name}/series", TO_READ, SeriesRoutes.get_series, (*SHOWS, 404)),
        Route("GET", "/v1/counters/{name}/watch", TO_READ, WatchRoutes.watch_counter, SHOWS, _STREAM),
        Route("GET", "/v1/watch", TO_READ, WatchRoutes.watch_counters, SHOWS, _STREAM),
        Route("GET", "/v1/counters/{name}/badge.svg", TO_READ, PictureRoutes.get_badge, (*SHOWS, 404), _BADGE),
        Route(
            "GET", "/v1/counters/{name}/badge.json", TO_READ, PictureRoutes.get_badge_data, (*SHOWS, 404), _BADGE_DATA
        ),
        Route("GET", "/v1/receipts/{id}", TO_FOLLOW, ReceiptRoutes.get_receipt, (*READS, 404)),
    ],
    ("manage", ADMIN): [
        Route("PUT", "/v1/counters/{name}", TO_ADMINISTER, ChangeRoutes.set_counter, WRITES),
        Route("DELETE", "/v1/counters/{name}", TO_ADMINISTER, ChangeRoutes.delete_counter, WRITES),
        Route("POST", "/v1/counters/{name}/reset", TO_ADMINISTER, ChangeRoutes.reset_counter, WRITES),
        Route("PUT", "/v1/counters/{name}/shards", TO_ADMINISTER, ChangeRoutes.raise_shards, (*WRITES, 409)),
        Route("GET", "/v1/jobs", TO_ADMINISTER, JobRoutes.list_jobs, (503, 507)),
        Route("POST", "/v1/jobs", TO_ADMINISTER, JobRoutes.start_job, (*WRITES, 409), _STARTED),
        Route("GET", "/v1/jobs/{id}", TO_ADMINISTER, JobRoutes.get_job, (*READS, 404)),
        Route("DELETE", "/v1/jobs/{id}", TO_ADMINISTER, JobRoutes.stop_job, (*READS, 404), _STOPPED),
        Route("GET", "/v1/jobs/{id}/export", TO_ADMINISTER, JobRoutes.get_export, (*READS, 404, 409), _EXPORT),
        Route("GET", "/v1/dead-letters", TO_ADMINISTER, DeadLetterRoutes.list_dead_letters, READS),
        Route("POST", "/v1/dead-letters/replay", TO_ADMINISTER, DeadLetterRoutes.replay_dead_letters, WRITES),
        Route("POST", "/v1/dead-letters/drop", TO_ADMINISTER, DeadLetterRoutes.drop_dead_letters, WRITES),
    ],
    ("operate", ADMIN): [
        Route("GET", "/v1/fleet", TO_ADMINISTER, FleetRoute.get_fleet, (404, 503)),
        Route("GET", "/metrics", TO_READ, ServiceRoutes.metrics, (), _METRICS),
        Route("GET", "/metrics/counters", TO_READ, ReadRoutes.counter_metrics, READS, _METRICS),
    ],
    ("operate", PUBLIC): [
        Route("GET", "/healthz", OPEN, ServiceRoutes.healthz),
        Route("GET", "/readyz", OPEN, ServiceRoutes.readyz, (503, 507)),
        Route("GET", "/version", OPEN, ServiceRoutes.version),
        Route("GET", "/openapi.json", ANY, ServiceRoutes.openapi, (), _ANYTHING),
        Route("GET", "/", OPEN, pages.console, (), _PAGE),
        Route("GET", "/docs", OPEN, pages.docs, (), _PAGE),
    ],
    ("", PUBLIC): [Route("GET", f"/console/{name}", OPEN, pages.serves(name), gives=_PAGE) for name in pages.FILES],
}
"""The routes of each chapter of the document and each listener."""
ROUTES: Final = tuple(replace(row, tag=tag, where=where) for (tag, where), rows in TABLE.items() for row in rows)

WITHOUT_KEY: Final = frozenset(route.path for route in ROUTES if route.need == OPEN)
OTHER: Final = "other"
"""What metrics call a request that has no route."""
_BY_PATH: Final[dict[str, dict[str, Route]]] = {}
for _route in ROUTES:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route
_HEADS: Final = {path[: path.index("{")]: path for path in _BY_PATH if path.endswith("}")}
"""What stands before the parameter in paths that have one, and the path that ends with the parameter."""
_WHOLE: Final = {head for head, path in _HEADS.items() if not any(other.startswith(f"{path}/") for other in _BY_PATH)}
"""Heads behind which the parameter takes the rest of the path."""


class Target(NamedTuple):
    """What a request asks for. All that have to know its route get it from here, so it is looked up once."""

    method: str
    path: str
    """As it was sent, with its percent-encoding. So are `query` and `parameter`."""
    query: str
    parameter: str | None
    methods: Mapping[str, Route]
    route: Route | None

    @property
    def need(self) -> Need:
        """The scopes that allow the request: its key needs one of them. What has no route needs any key."""
        return ANY if self.route is None else self.route.need or ANY

    @property
    def is_for_pages(self) -> bool:
        return self.route is not None and self.route.is_for_pages

    @property
    def label(self) -> str:
        """What metrics call it. There are few routes, whatever clients send."""
        return OTHER if self.route is None else self.route.label


def find(method: str, path: str, query: str = "") -> Target:
    """What is asked for by this request."""
    template, parameter = path, None
    for head, whole in _HEADS.items():
        if path.startswith(head):
            end = -1 if head in _WHOLE else path.find("/", len(head))
            template, parameter = (whole, path[len(head) :]) if end < 0 else (whole + path[end:], path[len(head) : end])
            break
    methods = _BY_PATH.get(template, {})
    return Target(method, path, query, parameter, methods, methods.get("GET" if method == "HEAD" else method))
