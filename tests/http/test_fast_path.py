"""The fast path and aiohttp answer the same bytes alike, and leave the same totals."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import uvloop

from shared.http.heads import Heads, RefusedError
from shared.model.errors import OverloadedError, TransientError
from tests.http.both_ways import END, batch, by_aiohttp, check, check_totals, connected, pair, post, refused
from tests.http.faults import failing
from tests.http.fuzz import parsers
from tests.http.fuzz.plan import framed
from tests.http.service import Service


def get(target: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target


BATCH: Final = batch(b'[{"counter":"c"}]')
ODD: Final = batch(b'[{"counter":"c","delta":1},{"counter":"d"}]')
"""A batch whose items do not have the same fields."""
_MANY: Final = b",".join([b'{"counter":"n%d"}' % number for number in range(3)])
CHUNKED: Final = post(None, b"Transfer-Encoding: chunked\r\n") + b"c\r\n" + b'{"delta": 3}' + b"\r\n0\r\n\r\n"

SHORT: Final = (
    post(),
    post(b""),
    post(b"{}"),
    post(b' {"delta": -7}\r\n'),
    post(b'{"delta": 2, "id": "one"}'),
    post(b'{"delta": 2, "id": "one"}'),
    post(b'{"id": "two"}', b"Idempotency-Key: three\r\n"),
    post(b'{"delta": 5}', b"Idempotency-Key: three\r\n"),
    post(b'{"delta": 5}', b"idempotency-key:  three \r\n"),
    post(None, b"Idempotency-Key: " + b"k" * 1_000 + b"\r\n"),
    post(None, b"Connection: keep-alive\r\nAccept: */*\r\nUser-Agent: it/1 (x; y)\r\n"),
    post(b"{}", b"connection: Keep-Alive\r\nContent-Type: text/plain\r\nX_Y: \r\n"),
    post(name=b"d%41%2F%C3%A9"),
    post(name=b"a.b~c!$&'()*+,;=:@-_"),
    post(name=b"x" * 400),
    *(post(name=name).replace(b"POST", b"GET") for name in (b"c", b"d%41%2F%C3%A9", b"never", b"c?max_age=0")),
    BATCH,
    batch(b'[{"counter":"c","delta":-3},{"counter":"d","delta":4},{"counter":"c","delta":5}]\r\n'),
    batch(b'{"counter":"c"}\n{"counter":"e"}\n', b"Content-Type: application/x-ndjson\r\n"),
    batch(b'{"counters":{"c":2,"f":-1}}'),
    batch(b'[{"counter":"c","id":"four"},{"counter":"c","id":"four"}]'),
    batch(b'[{"counter":"c","delta":1,"id":"four"},{"counter":"c","delta":1,"id":"five"}]'),
    batch(b"[%b]" % _MANY, b"Idempotency-Key: six\r\n"),
    batch(b"[%b]" % _MANY, b"Idempotency-Key: six\r\n"),
    batch(b'[{"counter":"c","id":"seven"}]', b"Idempotency-Key: eight\r\n"),
    get(b"/v1/counters?name=c&name=d%41%2F%C3%A9&name=never&name=c"),
    get(b"/v1/counters?max_age=0&prefix=d&limit=1"),
    get(b"/v1/counters"),
)
"""What must go the short way."""

_ODD_LENGTHS: Final = (b"", b"+0", b"-0", b"00", b"0 ", b"0,0", b"0x0", b"9" * 30)
_ODD_LENGTHS_OF_TWO: Final = (b"02", b"2 ", b" 2", b"1", b"3", b"2\r\nA:\r\n 1")
_ODD_HOSTS: Final = (b"", b"Host:\r\n", b"Host: a\r\nHost: a\r\n", b"Host: a b/c\r\n", b"X: y\r\n")
_ODD_LINES: Final = (b"x", b": x", b"X : y", b" X: y", b"X: y\r\n z", b"X:\ty\t")
_ODD_NAMES: Final = (
    *(b"", b".", b"..", b"__x__", b"%", b"%zz", b"%FF", b"%00", b"%2E", b"a/b", b"a//", b"/", b"#x", b"a#x"),
    *(b"c?", b"c?by=3", b"c?by=x", b"c?x=1", b"c?ack=none", b"c?wait=applied&timeout=0", b"c%3Fby=3"),
    *(b"x" * 401, b"%41" * 400, b"\xc3\xa9", b"\xe9", b"a\x7fb", b"a|b", b'"', b"[]", b"^`{}\\"),
)
_LINE: Final = b"POST /v1/counters/c HTTP/1.1\r\n"
_AFTER: Final = b"\r\nHost: h\r\n\r\n"
LONG: Final = (
    ODD,
    CHUNKED,
    *(
        batch(body)
        for body in (b"", b"[]", b"{}", b'[{"counter":""}]', b'[{"counter":"c"},{"counter":"."}]', b"[1]", b"[")
    ),
    *(batch(body) for body in (b'{"counters":{"c":1,"c":2}}', b'{"counters":{}}', b'[{"counter":"c"}]x', b"counter=c")),
    *(batch(b'[{"counter":"c"}]', header) for header in (b"Expect: 100-continue\r\n", b"Idempotency-Key: \r\n")),
    batch(b'[{"counter":"c"}]', b"Content-Encoding: gzip\r\n"),
    batch(b'[{"counter":"c","delta":2,"id":"four"}]'),
    batch(b"[%b]" % _MANY[: _MANY.rindex(b",")], b"Idempotency-Key: six\r\n"),
    batch(b'[{"counter":"c"}]').replace(b"/v1/increments", b"/v1/increments?ack=none"),
    batch(b" " * 1_900 + b'[{"counter":"c"}]'),
    batch(b" " * 2_100 + b'[{"counter":"c"}]'),
    *(
        get(b"/v1/counters?" + query)
        for query in (b"name=c&limit=1", b"name=", b"name=%zz", b"x=1", b"key=k", b"name=c#d")
    ),
    *(get(b"/v1/counters" + query) for query in (b"?", b"?limit=0", b"?limit=1&page_token=x", b"?prefix=%00", b"/")),
    *(post(name=name).replace(b"POST", b"GET") for name in _ODD_NAMES),
    post(b"{}").replace(b"POST", b"GET"),
    post(None, b"Range: bytes=0-3\r\nIf-None-Match: *\r\nAccept-Encoding: gzip\r\n").replace(b"POST", b"GET"),
    *(post(body) for body in (b"[]", b"{", b'{"delta": 1.5}', b'{"id": ""}', b'{"x": 1}', b'{"delta": 1, "delta": 2}')),
    *(post(body) for body in (b"\xff", b"\x0b", b'{"id": "' + b"i" * 1_001 + b'"}', b" " * 2_000, b" " * 2_001)),
    *(post(b" " * size) for size in (3_900, 5_000, 70_000)),
    *(post(None, b"Idempotency-Key: %b\r\n" % key) for key in (b"", b"k" * 1_001, b"\xc3\xa9", b"\xe9", b"a\tb")),
    post(None, b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n"),
    post(b'{"id": "z"}', b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n"),
    *(post(None, b"Content-Length: %b\r\n" % length) for length in _ODD_LENGTHS),
    *(_LINE + b"Host: h\r\nContent-Length: %b\r\n\r\n{}" % length for length in _ODD_LENGTHS_OF_TWO),
    post(b"{}", b"Content-Length: 2\r\n"),
    *(post(None, b"Connection: %b\r\n" % how) for how in (b"close", b"", b"x", b"keep-alive, close", b"upgrade")),
    post(None, b"Connection: keep-alive\r\nConnection: close\r\n"),
    post(None, b"Proxy-Connection: close\r\n"),
    post(None, b"Connection: upgrade\r\nUpgrade: nonsense\r\n"),
    post(b"{}", b"Expect: 100-continue\r\n"),
    post(b"{}", b"Content-Encoding: identity\r\n"),
    post(b"{}", b"Content-Encoding: nonsense\r\n"),
    post(b"{}", b"Transfer-Encoding: identity\r\n"),
    post(None, b"Sec-WebSocket-Key1: x\r\n"),
    *(_LINE + hosts + b"\r\n" for hosts in _ODD_HOSTS),
    *(_LINE + b"Host: h\r\n" + line + b"\r\n\r\n" for line in _ODD_LINES),
    *(b"POST /v1/counters/c " + http + _AFTER for http in (b"HTTP/1.0", b"HTTP/1.2", b"http/1.1", b"HTTP/2.0", b"")),
    b"POST /v1/counters/c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST  /v1/counters/c HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /v1/counters/c HTTP/1.1\nHost: h\n\n",
    b"POST /v1/counters/c HTTP/1.1\r\nHost: h\n\r\n",
    *(
        b"POST http://h%b/v1/counters/c HTTP/1.1\r\nHost: h\r\n\r\n" % port
        for port in (b"", b":8080", b":34899", b":65535", b":65536", b":99999", b":100000")
    ),
    *(method + b" /v1/counters/c HTTP/1.1" + _AFTER for method in (b"post", b"PUT", b"DELETE", b"HEAD", b"X")),
    b"CONNECT h:80 HTTP/1.1" + _AFTER,
    b"\r\n" + post(),
    b"\r\n\r\n" + post(),
    post() + b"\r\n",
    *(post(name=name) for name in _ODD_NAMES),
    *(post(None, b"X: y\r\n" * many) for many in (2, 200)),
    *(post(None, b"".join(b"X%d: y\r\n" % n for n in range(many))) for many in (60, 100, 125, 130)),
    post(None, b"X: " + b"y" * 3_000 + b"\r\n"),
    post(None, b"X: " + b"y" * 9_000 + b"\r\n"),
)
"""What is unusual in some way or wrong; some of it goes the short way all the same."""


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[tuple[Service, Service]]:
    async with pair(tmp_path) as both:
        yield both
        await check_totals(both)


async def test_what_is_plain_goes_the_short_way_and_is_answered_the_same(services: tuple[Service, Service]) -> None:
    for request in SHORT:
        status = b"HTTP/1.1 202 Accepted\r\n" if request.startswith(b"POST") else b"HTTP/1.1 200 OK\r\n"
        assert (await check(services, [request, END], patient=True)).startswith(status)
    answers = await check(services, [*SHORT, END], patient=True)
    assert answers.count(b"HTTP/1.1 20") == len(SHORT) + 1
    assert [by_aiohttp(service) for service in services] == [len(SHORT) + 1, 3 * len(SHORT) + 1]


async def test_what_is_not_is_answered_the_same(services: tuple[Service, Service]) -> None:
    """In one piece only that after which the connection goes on. aiohttp forgets what came in one piece with what is
    not HTTP or behind an upgrade that it does not know, and what comes in one piece is a matter of luck.
    """
    for request in LONG:
        pieces = [post(), request, post(), END]
        if b'{"version":' in await check(services, pieces, patient=True) and b"Upgrade:" not in request:
            await check(services, pieces)


@pytest.mark.parametrize(
    "around",
    [
        (_LINE + b"X: ", b""),
        (ODD + _LINE + b"X: ", b""),
        (post(None, b"Transfer-Encoding: chunked\r\n") + b"%x\r\n" % len(post()), b"\r\n0\r\n\r\n"),
        (_LINE + b"Host: h\r\nContent-Length: %d\r\n\r\n" % len(post()), b""),
        (_LINE + b"Host: h\r\nContent-Length: %d\r\n\r\n " % (len(post()) + 2), b" "),
        (ODD + _LINE + b"Host: h\r\nContent-Length: %d\r\n\r\n" % len(post()), b""),
    ],
)
async def test_what_only_looks_like_a_request_is_none(
    services: tuple[Service, Service], around: tuple[bytes, bytes]
) -> None:
    for first in ((), (post(),)):
        await check(services, [*first, around[0], post(), around[1] or END, END], patient=True)


async def test_every_byte_everywhere_means_the_same(services: tuple[Service, Service]) -> None:
    for byte in (bytes([number]) for number in range(256)):
        await check(services, [post(name=b"a%bb" % byte), END], patient=True)
        for header in (b"X%bY: z\r\n" % byte, b"X: y%bz\r\n" % byte):
            assert parsers.difference(parsers.head, post(None, header)) == ""


def test_the_same_holds_on_uvloop(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair(tmp_path, body_timeout=60.0, head_timeout=60.0) as services:  # real ones
            for request in (*SHORT, *LONG[::4]):
                await check(services, [post(), request, post(), END], patient=True)
            for one in framed(25):
                await check(services, [*(piece for piece, _ in one.pieces()), END])
            await check_totals(services)

    uvloop.run(run())


@pytest.mark.parametrize("between", [ODD, post(b"[]", b"TE: x\r\n"), post(name=b"c?by=3"), post(b"{}", b"TE: x\r\n")])
async def test_after_what_went_the_long_way_the_short_one_is_open_again(
    services: tuple[Service, Service], between: bytes
) -> None:
    head = between.index(b"\r\n\r\n") + 4
    for service in services:
        async with connected(service) as client:
            for request in (post(), between, post(), between, post()):
                await client.ask(request)
            client.writer.write(between[:head])
            if between[head:]:
                await asyncio.sleep(0.02)  # so that it comes in two pieces, though it need not
                client.writer.write(between[head:])
            await client.until(lambda client=client: client.answers() == 6)  # type: ignore[misc]
            await client.ask(post())
    assert [by_aiohttp(service) for service in services] == [3, 7]


async def test_a_publish_that_failed_is_said_in_the_same_words(
    services: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for service in services:
            error = OverloadedError("too much waits to be applied", retry_after=2.5)
            patch.setattr(service.parts.publisher, "publish", failing(error))
        before = refused()
        answers = await check(services, [post(), post(b'{"id": "x"}'), BATCH, END], patient=True)
        assert answers.count(b"Retry-After: ") == 3
        assert refused()[1] - before[1] == 6
    assert [by_aiohttp(service) for service in services] == [1, 4]
    assert (await check(services, [post(), END], patient=True)).startswith(b"HTTP/1.1 202 ")


async def test_a_read_that_failed_is_said_in_the_same_words(
    services: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for service in services:
            patch.setattr(service.ingest.reader, "read", failing(TransientError("the store does not answer")))
        reads = [post().replace(b"POST", b"GET"), get(b"/v1/counters?name=c")]
        answers = await check(services, [*reads, END], patient=True)
        assert answers.count(b"HTTP/1.1 503 ") == 2
    assert [by_aiohttp(service) for service in services] == [1, 3]


def test_the_time_to_read_a_header_grows_with_its_size_and_not_faster() -> None:
    """A pattern that tries each way to divide the spaces kept the event loop busy for 45 ms with 4 KB."""
    heads = Heads()

    def seconds(spaces: int) -> float:
        head = b"GET / HTTP/1.1\r\nHost: h\r\nX:" + b" " * spaces + b"\x01"
        taken = []
        for number in range(20):
            begun = time.thread_time()
            with pytest.raises(RefusedError):
                heads.read(b"%b\r\nA%d: b" % (head, number))
            taken.append(time.thread_time() - begun)
        return min(taken)

    assert seconds(3_900) < 12 * max(seconds(1_000), 1e-5)
