"""Tells which scopes a request needs: one table for all routes. Pure.

A test compares the table with the routes that are served. A path that is not in it needs any key: it is answered 404.
"""

from typing import Final

WRITE: Final = "write"
READ: Final = "read"
ADMIN: Final = "admin"
SCOPES: Final = (WRITE, READ, ADMIN)

COUNTERS: Final = "/v1/counters/"
RECEIPTS: Final = "/v1/receipts/"
JOBS: Final = "/v1/jobs/"
_COUNTER: Final = "/v1/counters/{name}"

SCRIPT: Final = "/countersink.js"
PIXEL: Final = "/pixel.gif"
BADGES: Final = ("/badge.svg", "/badge.json")
OPEN: Final = frozenset({"/", "/docs", "/healthz", "/readyz", "/version", SCRIPT})
"""These paths need no key."""
CONSOLE_FILES: Final = frozenset(
    f"/console/{name}"
    for name in (
        *("administer.js", "api.js", "app.js", "changes.js", "chart.js", "checks.js", "counter.js", "counters.js"),
        *("dialog.js", "docs.js", "dom.js", "jobs.js", "letters.js"),
        *("example.js", "fleet.js", "live.js", "metrics.js", "pipeline.js", "rates.js", "series.js", "start.js"),
        *("try.js", "icon.svg", "style.css", "uplot.css", "uplot.js", "uplot-LICENSE.txt"),
    )
)
"""What the console at / and /docs loads. It holds no data."""
WITHOUT_KEY: Final = OPEN | CONSOLE_FILES
STREAMS: Final = frozenset({"GET /v1/counters/{name}/watch", "GET /v1/watch"})
"""Routes whose answers go on until the client leaves."""
OTHER: Final = "other"
"""The route of a request that has no handler."""
TO_COUNT: Final = frozenset({WRITE})
"""The need of a request that counts. Publishable keys, and pages of other origins, may send only such requests."""
ANY: Final = frozenset(SCOPES)
_READ: Final = frozenset({READ})
TO_ADMINISTER: Final = frozenset({ADMIN})
"""What a request needs that changes or exports counters other than by counting."""
_RECEIPT: Final = frozenset({READ, WRITE})
"""Who may count may also ask what became of it."""

NEEDS: Final = {
    ("POST", "/v1/counters/{name}"): TO_COUNT,
    ("GET", "/v1/counters/{name}"): _READ,
    ("PUT", "/v1/counters/{name}"): TO_ADMINISTER,
    ("DELETE", "/v1/counters/{name}"): TO_ADMINISTER,
    ("POST", "/v1/counters/{name}/reset"): TO_ADMINISTER,
    ("PUT", "/v1/counters/{name}/shards"): TO_ADMINISTER,
    ("GET", "/v1/counters/{name}/series"): _READ,
    ("POST", "/v1/increments"): TO_COUNT,
    ("GET", "/v1/counters/{name}/pixel.gif"): TO_COUNT,
    **{("GET", f"/v1/counters/{{name}}{badge}"): _READ for badge in BADGES},
    ("POST", "/v1/events"): TO_COUNT,
    ("GET", "/v1/counters"): _READ,
    ("GET", "/v1/counters/{name}/watch"): _READ,
    ("GET", "/v1/watch"): _READ,
    ("GET", "/v1/receipts/{id}"): _RECEIPT,
    ("POST", "/v1/jobs"): TO_ADMINISTER,
    ("GET", "/v1/jobs"): TO_ADMINISTER,
    ("GET", "/v1/jobs/{id}"): TO_ADMINISTER,
    ("DELETE", "/v1/jobs/{id}"): TO_ADMINISTER,
    ("GET", "/v1/jobs/{id}/export"): TO_ADMINISTER,
    ("GET", "/v1/fleet"): TO_ADMINISTER,
    ("GET", "/v1/dead-letters"): TO_ADMINISTER,
    ("POST", "/v1/dead-letters/replay"): TO_ADMINISTER,
    ("POST", "/v1/dead-letters/drop"): TO_ADMINISTER,
    ("GET", "/metrics"): _READ,
    ("GET", "/openapi.json"): ANY,
}
"""One of these scopes is enough."""


def needs(method: str, path: str) -> frozenset[str]:
    """The scopes that allow a request: its key needs one of them. `path` is as it was sent."""
    if method == "POST" and path.startswith(COUNTERS) and path.find("/", len(COUNTERS)) < 0:
        return TO_COUNT  # the commonest one; the table says the same
    return NEEDS.get(("GET" if method == "HEAD" else method, _template(path)), ANY)


def route_of(method: str, path: str) -> str:
    """What metrics call a request. There are few routes, whatever clients send."""
    method = "GET" if method == "HEAD" else method
    template = _template(path)
    if (method, template) in NEEDS:
        return f"{method} {template}"
    if method == "GET" and path in WITHOUT_KEY:
        return "GET /console" if path in CONSOLE_FILES else f"GET {path}"
    return OTHER


def counts(path: str) -> bool:
    """Whether a POST to this path counts."""
    return needs("POST", path) is TO_COUNT


def _template(path: str) -> str:
    if path.startswith(COUNTERS):
        end = path.find("/", len(COUNTERS))
        return _COUNTER if end < 0 else _COUNTER + path[end:]
    if path.startswith(RECEIPTS):
        return f"{RECEIPTS}{{id}}"
    if path.startswith(JOBS):
        _, slash, part = path[len(JOBS) :].partition("/")
        return f"{JOBS}{{id}}{slash}{part}"
    return path
