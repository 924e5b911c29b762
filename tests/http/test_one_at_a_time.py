"""A connection has one request at a time: nothing of one becomes part of the next, and what comes early is not read."""

import asyncio
from typing import Final

import pytest

from shared.http.front import MOST_AHEAD_HELD
from tests.http.both_ways import END, Client, connected, connections, poll, post
from tests.http.service import Service

CHUNKED: Final = (
    b'POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{"delta": 1}\r\n0\r\n%b\r\n'
)
TRAILERS: Final = (b"", b"Idempotency-Key: stolen\r\n", b"Host: other\r\n", b"Authorization: Bearer stolen\r\n")
LARGEST_READ: Final = 262_144
"""Bytes that an event loop reads at once."""
WAITING: Final = post(b"{}").replace(b"/c HTTP", b"/c?wait=applied&timeout=2 HTTP")


async def send_all(client: Client, data: bytes, piece: int) -> None:
    for begin in range(0, len(data), piece):
        client.writer.write(data[begin : begin + piece])
        await client.writer.drain()


@pytest.mark.parametrize("trailer", TRAILERS)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_no_trailer_becomes_part_of_the_next_request(service: Service, trailer: bytes, piece: int) -> None:
    """A parser of aiohttp takes the last trailer of a chunked body for a header of the next request."""
    stolen = post(b"{}", b"Idempotency-Key: stolen\r\n", name=b"next")
    async with connected(service) as client:
        chunked = CHUNKED % trailer
        await send_all(client, chunked + post(name=b"next") + stolen + chunked + END, piece)
        await client.until(lambda: client.closed)
        assert client.seen.count(b"HTTP/1.1 202 ") == 4
        assert b"duplicate" not in client.seen
    assert await service.totals() == {"c": 2, "next": 2}


@pytest.mark.parametrize("behind", [CHUNKED % b"X: y\r\n", post(b"{}", b"X: %b\r\n" % (b"x" * 8_000))])
async def test_what_comes_behind_a_request_that_waits_is_hardly_read(service: Service, behind: bytes) -> None:
    async with connected(service) as client:
        client.writer.write(WAITING)
        for _ in range(8_000_000 // len(behind)):
            client.writer.write(behind)
        (connection,) = connections(service)
        await poll(lambda: connection._held)
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert len(connection._held) <= MOST_AHEAD_HELD + LARGEST_READ
        client.writer.transport.abort()
        await poll(lambda: connection not in connections(service))


async def test_a_client_that_hangs_up_is_noticed_though_it_sent_more(service: Service) -> None:
    async with connected(service) as client:
        client.writer.write(WAITING.replace(b"timeout=2", b"timeout=1") + post())
        (connection,) = connections(service)
        await poll(lambda: connection._held)
        client.writer.transport.abort()
        await poll(lambda: connection not in connections(service))


@pytest.mark.parametrize(
    "line", [b"OPTIONS / RTSP/1.0", b"DESCRIBE / RTSP/1.0", b"SOURCE / ICE/1.0", b"GET / HTTP/2.0", b"GET /"]
)
async def test_a_line_of_another_protocol_is_refused(service: Service, line: bytes) -> None:
    async with connected(service) as client:
        client.writer.write(line + b"\r\nHost: h\r\n\r\n" + post())
        await client.until(lambda: client.closed)
        assert b" 400 " in client.seen.partition(b"\r\n")[0]
        assert client.answers() <= 1
    assert await service.totals() == {}
