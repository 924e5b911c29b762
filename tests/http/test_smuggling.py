"""Requests that two servers could read in two ways, and what is not HTTP at all: refused, and the connection closed."""

import asyncio
from typing import Final

import pytest

from tests.http import answer
from tests.http.both_ways import connected, post
from tests.http.service import Service

INNER: Final = post(name=b"smuggled")
LINE: Final = b"POST /v1/counters/c HTTP/1.1\r\n"
HEAD: Final = LINE + b"Host: h\r\n"
_CHUNKS: Final = b"0\r\n\r\n" + INNER
REFUSED: Final = {
    "CL.TE": HEAD + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(_CHUNKS) + _CHUNKS,
    "TE.CL": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + _CHUNKS,
    "TE.TE": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + _CHUNKS,
    "xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + _CHUNKS,
    "chunked, but not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + _CHUNKS,
    "a space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + _CHUNKS,
    "a folded header": HEAD + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n" + _CHUNKS,
    "two equal lengths": HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + INNER,
    "two lengths in one": HEAD + b"Content-Length: 0, 0\r\n\r\n" + INNER,
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    "a hexadecimal length": HEAD + b"Content-Length: 0x1\r\n\r\n" + INNER,
    "bare line feeds": (HEAD + b"\r\n").replace(b"\r\n", b"\n") + INNER,
    "a bare line feed in the head": HEAD + b"X: y\nContent-Length: 0\r\n\r\n" + INNER,
    "a bare return in the head": HEAD + b"X: y\rContent-Length: 0\r\n\r\n" + INNER,
    "a NUL in a value": HEAD + b"X: \x00\r\n\r\n" + INNER,
    "a NUL in a name": HEAD + b"X\x00: y\r\n\r\n" + INNER,
    "a chunk's size with a sign": HEAD + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + INNER,
    "a chunk's size beyond 64 bits": HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + INNER,
    "a chunk that ends in a line feed": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n" + INNER,
    "HTTP/0.9": b"GET /\r\n\r\n" + INNER,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + INNER,
    "TLS": bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(range(256)) * 2,
    "no host": LINE + b"\r\n" + INNER,
    "two hosts": HEAD + b"Host: other\r\n\r\n" + INNER,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
async def test_what_could_be_read_in_two_ways_is_refused_whole(service: Service, data: bytes) -> None:
    async with asyncio.timeout(60):
        seen = await service.send(data)
    found = answer.parse(seen)
    assert found.status == 400
    assert found.json["status"] == 400
    assert seen.count(b"HTTP/1.") == 1
    assert await service.totals() == {}


@pytest.mark.parametrize("after", [b"/", b"//h/", b"http://h:1/v1/counters/c?by=x", b"*", b"h:80"])
async def test_other_forms_of_a_target_lead_nowhere(service: Service, after: bytes) -> None:
    seen = await service.send(b"POST %b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % after)
    assert answer.parse(seen).status in {400, 404, 405, 422}
    assert await service.totals() == {}


async def test_thousands_in_one_write_are_answered_in_order_and_hold_up_nobody(service: Service) -> None:
    many = 3_000
    async with connected(service) as client, connected(service) as polite:
        paths = [b"/v1/receipts/r%d" % number for number in range(many)]
        client.writer.write(b"".join(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path for path in paths))
        for _ in range(5):
            begun = asyncio.get_running_loop().time()
            await polite.ask(post())
            assert asyncio.get_running_loop().time() - begun < 2
        assert client.answers() < many  # it was while they were being answered
        await client.until(lambda: client.answers() == many, 60)
    order = [int(part.partition(b'"')[0]) for part in client.seen.split(b'"receipt":"r')[1:]]
    assert order == list(range(many))
