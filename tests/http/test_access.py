"""Each route, each way through the server, each kind of key: what is answered, and whether anything has happened.

With chunked bodies, all goes through aiohttp.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ingest.api.routes import ROUTES as TABLE
from ingest.api.routes import find
from shared.runtime import metrics
from tests.http import both_ways, contract
from tests.http.answer import Answer
from tests.http.keys import ALL, FUTURE, PAST, SHOP, bearer, guarded
from tests.http.service import Service


class Route(NamedTuple):
    """A request, what it is a case of, and how it is answered if it is let in."""

    method: str
    target: str
    kind: str
    status: int = 200
    body: bytes = b""


EVENT: Final = (
    b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"counters": {"p:c": 4, "p:d": 4}}}'
)
ROUTES: Final = [
    Route("POST", "/v1/counters/p%3Ac", "count", 202, b'{"delta": 3}'),
    Route("POST", "/v1/counters/p:c", "count", 202),
    Route("POST", "/v1/counters/p:c?by=2", "count", 202),
    Route("POST", "/v1/increments", "count", 202, b'[{"counter": "p:c"}]'),
    Route("POST", "/v1/increments", "count", 202, b'{"counters": {"p:c": 2, "p:d": 2}}'),
    Route("POST", "/v1/increments", "count", 202, b'{"counter": "p:c", "id": "one"}\n{"counter": "p:d"}'),
    Route("POST", "/v1/increments", "count", 202, b"counter=p%3Ac&delta=2"),
    Route("POST", "/v1/events", "count", 202, EVENT),
    Route("GET", "/v1/counters/p:c", "read"),
    Route("HEAD", "/v1/counters/p:c", "read"),
    Route("GET", "/v1/counters?name=p:c&name=p:d", "read"),
    Route("GET", "/v1/counters/p:c/series?by=hour", "read", 404),  # no rule keeps it
    Route("GET", "/v1/counters/p:c/watch", "read"),
    Route("GET", "/v1/watch?name=p:c&name=p:d", "read"),
    Route("GET", "/v1/watch?prefix=p:", "read"),
    Route("GET", "/v1/counters?prefix=p", "list"),
    Route("GET", "/v1/counters", "list"),
    Route("GET", "/v1/receipts/nobodys", "receipt", 404),  # with keys, each receipt is signed
    Route("PUT", "/v1/counters/p:c", "change", 200, b'{"value": 70}'),
    Route("PUT", "/v1/counters/p:c/shards", "change", 200, b'{"shards": 3}'),
    Route("POST", "/v1/jobs", "change", 202, b'{"kind": "add", "prefix": "p:", "delta": 10, "id": "mine"}'),
    Route("GET", "/v1/jobs", "jobs"),
    Route("GET", "/v1/jobs/there", "show"),
    Route("GET", "/v1/jobs/there/export", "show"),
    Route("DELETE", "/v1/jobs/there", "show"),  # it is done, so this changes nothing
    Route("POST", "/v1/counters/p:c/reset", "change"),
    Route("DELETE", "/v1/counters/p:d", "change"),
    Route("GET", "/v1/fleet", "jobs", 404),  # a file has none
    Route("GET", "/v1/dead-letters", "letters"),
    Route("HEAD", "/v1/dead-letters?limit=1", "letters"),
    Route("POST", "/v1/dead-letters/replay", "letters", 200, b'{"all": true}'),
    Route("POST", "/v1/dead-letters/drop", "letters", 200, b'{"ids": ["1"]}'),
    Route("GET", "/metrics", "metrics"),
    Route("GET", "/metrics/counters", "metrics"),
    Route("GET", "/openapi.json", "any"),
    Route("GET", "/nothing", "any", 404),
    Route("PATCH", "/v1/jobs", "any", 405),
    Route("OPTIONS", "/v1/increments", "any", 405),
    Route("GET", "/", "open"),
    Route("GET", "/docs", "open"),
    Route("GET", "/healthz", "open"),
    Route("GET", "/readyz", "open"),
    Route("GET", "/version", "open"),
    Route("GET", "/countersink.js", "open"),
    Route("GET", "/v1/counters/p:c/badge.svg", "open"),
    Route("GET", "/v1/counters/p:c/badge.json", "open"),
    Route("GET", "/v1/counters/p:c/pixel.gif", "pixel"),
    Route("HEAD", "/v1/counters/p:c/pixel.gif", "no pixel"),
]
EACH: Final = frozenset(route.kind for route in ROUTES)
COUNTING: Final = {"count", "change", "pixel"}
"""The kinds that change something."""
ORIGIN: Final = f"Origin: {SHOP}\r\n".encode()
ELSEWHERE: Final = b"Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
OF_PAGES: Final = {"scopes": ["write"], "prefixes": ["p:"], "origins": [SHOP], "publishable": True, "max_delta": 10}
KEYS: Final[dict[str, dict[str, Any]]] = {
    "expired": {"expires": PAST},
    "all": {"expires": FUTURE},
    "write": {"scopes": ["write"]},
    "read": {"scopes": ["read"]},
    "admin": {"scopes": ["admin"]},
    "its-prefix": {"scopes": ALL, "prefixes": ["a:", "p:"]},
    "another-prefix": {"scopes": ALL, "prefixes": ["z:"]},
    "cpk": OF_PAGES,
    "cpk-reads": OF_PAGES | {"scopes": ["write", "read"], "rate": 10_000.0},
    "cpk-another-prefix": OF_PAGES | {"prefixes": ["z:"]},
}
MAY: Final[dict[str, tuple[int, set[str]]]] = {
    "nobody": (401, {"open"}),
    "wrong": (401, {"open"}),
    "of the wrong kind": (401, {"open"}),
    "malformed": (401, {"open"}),
    "repeated": (401, {"open"}),
    "expired": (401, {"open"}),
    "all": (403, {*EACH}),
    "all, from another site": (403, {*EACH}),
    "write": (403, {"open", "any", "count", "receipt", "pixel", "no pixel"}),
    "read": (403, {"open", "any", "read", "list", "receipt", "metrics"}),
    "admin": (403, {"open", "any", "change", "show", "jobs", "letters"}),
    "its-prefix": (403, {*EACH} - {"letters"}),
    "another-prefix": (403, {"open", "any", "list", "jobs", "receipt", "metrics"}),
    "cpk": (403, {"open", "count", "pixel", "no pixel"}),
    "cpk, from another site": (403, {"open"}),
    "cpk, from no page": (403, {"open", "pixel", "no pixel"}),
    "cpk-reads": (403, {"open", "count", "pixel", "no pixel", "read", "list"}),
    "cpk-reads, from another site": (403, {"open"}),
    "cpk-reads, from no page": (403, {"open", "pixel", "no pixel", "read", "list"}),
    "cpk-another-prefix": (403, {"open"}),
}
"""Who: the status of what they may not, and the kinds that they may."""


def headers_of(who: str, keys: dict[str, str]) -> bytes:
    if who == "nobody":
        return b""
    if who == "malformed":
        return b"Authorization: Basic " + keys["all"].encode() + b"\r\n"
    if who == "repeated":
        return bearer(keys["all"]) * 2
    if who == "wrong":
        return bearer(keys["all"][:-1] + ("0" if keys["all"][-1] != "0" else "1"))
    if who == "of the wrong kind":
        return bearer("cpk" + keys["all"][3:])
    name, _, where = who.partition(", ")
    page = ELSEWHERE if where == "from another site" else ORIGIN if name.startswith("cpk") and not where else b""
    return bearer(keys[name]) + page


def bytes_of(route: Route, headers: bytes, *, chunked: bool = False) -> bytes:
    head = f"{route.method} {route.target} HTTP/1.1\r\nHost: h\r\n".encode() + headers
    if route.body is EVENT:
        head += b"Content-Type: application/cloudevents+json\r\n"
    if chunked:
        piece = b"%x\r\n%b\r\n" % (len(route.body), route.body) if route.body else b""
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + piece + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(route.body) + route.body


async def ask(service: Service, route: Route, headers: bytes, *, chunked: bool = False) -> Answer:
    found = await both_ways.ask(service, bytes_of(route, headers, chunked=chunked))
    contract.check(route.method, route.target.partition("?")[0], found)
    return found


async def effects(service: Service, headers: bytes) -> object:
    """All that a request could have changed."""
    counters = (await ask(service, Route("GET", "/v1/counters?max_age=0", ""), headers)).json["counters"]
    job = await ask(service, Route("GET", "/v1/jobs/mine", ""), headers)
    return (
        sorted((item["name"], item["value"], item["shards"]) for item in counters),
        (job.status, job.json.get("state")),
        metrics.ACCEPTED.get(),
        metrics.UNDURABLE.get(),
    )


async def prepare(service: Service, headers: bytes) -> None:
    for name in ("p:c", "p:d"):
        assert (await ask(service, Route("POST", f"/v1/counters/{name}", ""), headers)).status == 202
    export = Route("POST", "/v1/jobs", "", 202, b'{"kind": "export", "prefix": "p:", "id": "there"}')
    await service.apply()
    assert (await ask(service, export, headers)).status == 202
    await service.work()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("who", MAY)
async def test_who_may_what(tmp_path: Path, who: str, *, chunked: bool) -> None:
    async with guarded(tmp_path, {"pixels": ("p:",), "badges": ("p:",)}, **KEYS) as (service, keys):
        everything = bearer(keys["all"])
        await prepare(service, everything)
        refusal, kinds = MAY[who]
        before = await effects(service, everything)
        for route in ROUTES:
            if counts := route.kind in kinds & COUNTING:
                assert await effects(service, everything) == before, f"something changed before {route}"
            found = await ask(service, route, headers_of(who, keys), chunked=chunked)
            assert found.status == (route.status if route.kind in kinds else refusal), (route, found)
            if counts:
                before, after = await effects(service, everything), before
                assert before != after, (route, found)
            assert (found.status == 401) == ("WWW-Authenticate" in found.headers)
            if route.kind == "list" and found.status == 200:
                listed = [item["name"] for item in found.json["counters"]]
                assert listed == ([] if who == "another-prefix" else ["p:c", "p:d"])
        assert await effects(service, everything) == before, "something changed"


def test_each_route_is_tried() -> None:
    asked = {find(route.method, route.target.partition("?")[0]).route for route in ROUTES if route.kind != "any"}
    assert {row.label for row in TABLE if row.tag} - {"GET /openapi.json"} == {row.label for row in asked if row}
