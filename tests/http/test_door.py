"""Every request passes the door once and before anything else, whichever way it takes through the server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from ingest.access.callers import Caller
from ingest.access.door import Door
from ingest.http.problems import Problem
from shared.model.errors import CountersinkError, OverloadedError, ShareError
from shared.runtime import metrics
from tests.http import contract
from tests.http.both_ways import END, ODD, ask, batch, by_aiohttp, check, connected, pair, post, server_of
from tests.http.service import Service

Entered = list[tuple[str, str, str]]

BODIES: Final = {
    "/v1/increments": b'[{"counter":"c"}]',
    "/v1/counters/c": b'{"value": 3}',
    "/v1/counters/c/shards": b'{"shards": 3}',
    "/v1/jobs": b'{"kind": "export", "prefix": ""}',
    "/v1/dead-letters/replay": b'{"all": true}',
    "/v1/dead-letters/drop": b'{"ids": ["1"]}',
}
DESCRIBED: Final = [(method, path.replace("{name}", "c").replace("{id}", "j")) for method, path in contract.OPERATIONS]
OTHERS: Final = [
    *(("HEAD", "/version"), ("GET", "/v1/counters/c?max_age=0"), ("POST", "/v1/counters/c?by=2")),
    *(("GET", "/"), ("GET", "/v1"), ("GET", "//"), ("POST", "/nothing?a=b"), ("GET", "/v1/counters/c/nothing")),
    *(("PATCH", "/v1/counters/c"), ("DELETE", "/healthz"), ("PUT", "/openapi.json"), ("PURGE", "/v1/jobs")),
    *(("OPTIONS", "/v1/increments"), ("TRACE", "/"), ("POST", "/v1/counters/%zz"), ("GET", "/v1/counters?%zz")),
    *(("POST", "/v1/counters/.."), ("POST", "/v1/counters/__x__")),
]
NOT_HTTP: Final = {
    "nonsense": (b"nonsense\r\n\r\n", 400),
    "CONNECT": (b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "an unknown method": (b"X /v1/counters/c HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    "no host": (b"POST /v1/counters/c HTTP/1.1\r\n\r\n", 400),
    "two lengths": (post(b"{}", b"Content-Length: 2\r\n"), 400),
    "a long line": (b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * 20_000), 414),
    "a long header": (b"GET / HTTP/1.1\r\nHost: h\r\nX: %b\r\n\r\n" % (b"x" * 10_000), 431),
}
FAST: Final = [post(), post(b'{"delta": 2, "id": "one"}'), post().replace(b"POST", b"GET")]
MIXED: Final = [*FAST, post(b"[]"), post(b'{"x": 1}'), post(name=b".."), post(None, ODD)]


def bytes_of(method: str, target: str, header: bytes = b"") -> bytes:
    body = BODIES.get(target, b"") if method in {"POST", "PUT"} else b""
    if (method, target) == ("POST", "/v1/counters/c"):
        body = b'{"delta": 3}'
    head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n".encode()
    return head + header + b"\r\n" + body


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Entered:
    """What has passed the door, which is open."""
    seen: Entered = []
    enter = Door.enter

    def watched(door: Door, *shown: Any) -> Caller:
        target, _, peer = shown
        seen.append(target[:3])
        assert peer == "127.0.0.1"
        return enter(door, *shown)

    monkeypatch.setattr(Door, "enter", watched)
    return seen


def refuse(*_: object) -> NoReturn:
    raise Problem(403, "nobody may do anything")


@pytest.mark.parametrize("header", [b"", ODD], ids=["either way", "by aiohttp"])
async def test_it_is_passed_once_by_what_is_answered(service: Service, entered: Entered, header: bytes) -> None:
    for method, target in (*DESCRIBED, *OTHERS):
        entered.clear()
        await ask(service, bytes_of(method, target, header))
        path, _, query = target.partition("?")
        assert entered == [(method, path, query)]


async def test_it_is_passed_once_on_the_fast_path(service: Service, entered: Entered) -> None:
    async with connected(service) as client:
        for number, data in enumerate(FAST * 3, 1):
            await client.ask(data)
            assert len(entered) == number
    assert by_aiohttp(service) == 0


async def test_it_is_passed_once_by_what_is_not_http(
    service: Service, entered: Entered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, (data, status) in NOT_HTTP.items():
        entered.clear()
        assert (await service.raw(data)).status == status, what
        assert entered == [("UNKNOWN", "/", "")], what
    monkeypatch.setattr(Door, "enter", refuse)
    for what, (data, _) in NOT_HTTP.items():
        assert (await service.raw(data)).status == 403, what


async def test_what_is_refused_at_the_door_gets_no_further(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    before = metrics.ACCEPTED.get()
    requests = [*(bytes_of(*one, header) for one in (*DESCRIBED, *OTHERS) for header in (b"", ODD)), *MIXED]
    with monkeypatch.context() as patch:
        patch.setattr(Door, "enter", refuse)
        async with connected(service) as client:
            for number, data in enumerate(requests, 1):
                await client.ask(data)
                assert client.seen.count(b"HTTP/1.1 403 Forbidden\r\n") == number, data
    assert await service.totals() == {}
    await service.apply()
    assert await service.totals() == {}
    assert metrics.ACCEPTED.get() == before
    assert (await service.get("/v1/jobs/j")).status == 404


@pytest.mark.parametrize("cut", [None, 1, 40])
@pytest.mark.parametrize("refused", [False, True])
async def test_pipelined_requests_pass_one_by_one(
    service: Service, entered: Entered, monkeypatch: pytest.MonkeyPatch, cut: int | None, *, refused: bool
) -> None:
    requests = [*MIXED, bytes_of("GET", "/healthz"), *FAST, bytes_of("PATCH", "/"), bytes_of("GET", "/no"), *MIXED]
    paths = [data.split(b" ")[1].decode() for data in requests]
    if refused:
        watched = Door.enter

        def look_and_refuse(door: Door, *shown: Any) -> NoReturn:
            watched(door, *shown)
            refuse()

        monkeypatch.setattr(Door, "enter", look_and_refuse)
    stream = b"".join(requests)
    async with connected(service) as client:
        size = cut or len(stream)
        for start in range(0, len(stream), size):
            client.writer.write(stream[start : start + size])
            await client.writer.drain()
        await client.until(lambda: client.answers() == len(requests))
    assert [path for _, path, _ in entered] == paths
    assert client.seen.count(b"HTTP/1.1 403 ") == (len(requests) if refused else 0)


async def test_the_body_is_neither_asked_for_nor_judged_before_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Door, "enter", refuse)
    expect, huge = b"Expect: 100-continue\r\nContent-Length: 5\r\n", b"Content-Length: 999999999999\r\n"
    for head in (expect, huge, expect + ODD, huge + ODD):
        found = await ask(service, b"POST /v1/increments HTTP/1.1\r\nHost: h\r\n%b\r\n" % head)
        assert found.status == 403
    assert service.ingest.bodies.held == 0


async def test_it_comes_before_the_word_that_there_are_too_many(
    service: Service, entered: Entered, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_of(service).most = 0
    requests = [bytes_of("GET", "/v1/counters/c", header) for header in (b"", ODD)]
    for request in requests:
        assert (await ask(service, request)).status == 503
    assert entered == [("GET", "/v1/counters/c", "")] * 2
    monkeypatch.setattr(Door, "enter", refuse)
    for request in requests:
        assert (await ask(service, request)).status == 403


@pytest.mark.parametrize(
    "make",
    [
        lambda: Problem(401, "send a key", headers={"WWW-Authenticate": "Bearer"}),
        lambda: Problem(403, "this key may not do that", field="Authorization"),
        lambda: ShareError("this key counts too much", 3.0),
        lambda: OverloadedError("too much is counted", 3.0),
    ],
)
async def test_both_ways_say_it_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Problem | CountersinkError]
) -> None:
    enter = Door.enter

    def judge(door: Door, *shown: Any) -> Caller:
        if shown[1].authorization == ("bad",):
            raise make()
        return enter(door, *shown)

    monkeypatch.setattr(Door, "enter", judge)
    async with pair(tmp_path) as services:
        pieces = [
            post(),
            post(b"{}", b"authorization: bad\r\n"),
            post(b"[]", b"AUTHORIZATION: bad\r\n"),
            post(None, b"Authorization: a\r\n"),
            END,
        ]
        seen = await check(services, pieces, patient=True)
        assert [part[:3] for part in seen.split(b"HTTP/1.1 ")[1:]].count(b"202") == 2
        assert (await services[0].totals()) == {"c": 2}


async def test_what_it_found_goes_with_the_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as to what waits to be published, and to the room that a body takes."""
    senders: list[str] = []
    publishing = service.ingest.publishing
    admit = publishing.admission.enter

    def enter(tenant: str, *rest: Any) -> None:
        senders.append(tenant)
        admit(tenant, *rest)

    def named(_: Door, *shown: Any) -> Caller:
        return Caller(shown[1].forwarded[0])

    monkeypatch.setattr(publishing.admission, "enter", enter)
    monkeypatch.setattr(Door, "enter", named)
    for data in (
        post(b'{"id": "x"}', b"X-Forwarded-For: a\r\n"),
        post(b'{"id": "y"}', b"TE: x\r\nX-Forwarded-For: b\r\n"),
        batch(BODIES["/v1/increments"], b"X-Forwarded-For: c\r\n"),
    ):
        assert (await ask(service, data)).status == 202
    assert senders == ["a", "b", "c"]
