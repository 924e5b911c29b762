"""What could be read in two ways or is no HTTP; bodies that are broken, slow or too large: all of it is refused."""

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.http import answer as answers
from tests.http import contract
from tests.http.both_ways import connected, connections, poll, post
from tests.http.service import Service, running

HEAD: Final = b"POST /v1/counters/there HTTP/1.1\r\nHost: h\r\n"
BATCH: Final = b"POST /v1/increments HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
INNER: Final = post(name=b"smuggled")
LINE: Final = b"POST /v1/counters/c HTTP/1.1\r\n"
_C: Final = LINE + b"Host: h\r\n"
_CHUNKED: Final = _C + b"Transfer-Encoding: chunked\r\n\r\n"
_CHUNKS: Final = b"0\r\n\r\n" + INNER
REFUSED: Final = {
    "CL.TE": _C + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(_CHUNKS) + _CHUNKS,
    "TE.CL": _C + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + _CHUNKS,
    "TE.TE": _C + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + _CHUNKS,
    "xchunked": _C + b"Transfer-Encoding: xchunked\r\n\r\n" + _CHUNKS,
    "chunked, but not last": _C + b"Transfer-Encoding: chunked, identity\r\n\r\n" + _CHUNKS,
    "a space before the colon": _C + b"Transfer-Encoding : chunked\r\n\r\n" + _CHUNKS,
    "a folded header": _C + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n" + _CHUNKS,
    "two equal lengths": _C + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + INNER,
    "two lengths in one": _C + b"Content-Length: 0, 0\r\n\r\n" + INNER,
    "two lengths": _C + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    "a hexadecimal length": _C + b"Content-Length: 0x1\r\n\r\n" + INNER,
    "bare line feeds": (_C + b"\r\n").replace(b"\r\n", b"\n") + INNER,
    "a bare line feed in the head": _C + b"X: y\nContent-Length: 0\r\n\r\n" + INNER,
    "a bare return in the head": _C + b"X: y\rContent-Length: 0\r\n\r\n" + INNER,
    "a NUL in a value": _C + b"X: \x00\r\n\r\n" + INNER,
    "a NUL in a name": _C + b"X\x00: y\r\n\r\n" + INNER,
    "a chunk's size with a sign": _CHUNKED + b"+0\r\n\r\n" + INNER,
    "a chunk's size beyond 64 bits": _CHUNKED + b"10000000000000000\r\n" + INNER,
    "a chunk that ends in a line feed": _CHUNKED + b"2\n{}\n0\n\n" + INNER,
    "HTTP/0.9": b"GET /\r\n\r\n" + INNER,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + INNER,
    "TLS": bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(range(256)) * 2,
    "RTSP": b"OPTIONS / RTSP/1.0\r\nHost: h\r\n\r\n" + INNER,
    "a method of RTSP": b"DESCRIBE / RTSP/1.0\r\nHost: h\r\n\r\n" + INNER,
    "Icecast": b"SOURCE / ICE/1.0\r\nHost: h\r\n\r\n" + INNER,
    "GET of HTTP/2": b"GET / HTTP/2.0\r\nHost: h\r\n\r\n" + INNER,
    "GET of HTTP/0.9 with a head": b"GET /\r\nHost: h\r\n\r\n" + INNER,
    "no host": LINE + b"\r\n" + INNER,
    "two hosts": _C + b"Host: other\r\n\r\n" + INNER,
    "no HTTP": b"count please\r\n\r\n" + INNER,
    "an unknown version": b"GET /healthz HTTP/9.1\r\nHost: h\r\n\r\n" + INNER,
    "a header without a colon": _C + b"nonsense\r\n\r\n" + INNER,
    "a space in a header's name": _C + b"X Y: z\r\n\r\n" + INNER,
    "too many headers": _C + b"X: y\r\n" * 200 + b"\r\n" + INNER,
    "a negative length": _C + b"Content-Length: -1\r\n\r\n" + INNER,
    "a length that is no number": _C + b"Content-Length: x\r\n\r\n" + INNER,
    "a length with a sign": _C + b"Content-Length: +2\r\n\r\n{}" + INNER,
    "a chunk's size that is no number": _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n" + INNER,
    "a negative chunk's size": _CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n" + INNER,
    "a chunk that is longer than its size": _CHUNKED + b"2\r\n{}xx\r\n0\r\n\r\n" + INNER,
    "a raw space in the path": b"POST /v1/counters/a b HTTP/1.1\r\nHost: h\r\n\r\n" + INNER,
}


async def test_what_could_be_read_in_two_ways_is_refused_whole(service: Service) -> None:
    for what, data in REFUSED.items():
        async with asyncio.timeout(60):
            seen = await service.send(data)
        found = answers.parse(seen)
        contract.check_problem(found)
        assert found.status == 400, what
        assert seen.count(b"HTTP/1.") == 1, what
        assert await service.totals() == {}, what


async def test_other_forms_of_a_target_lead_nowhere(service: Service) -> None:
    for after in [b"/", b"//h/", b"http://h:1/v1/counters/c?by=x", b"*", b"h:80"]:
        seen = await service.send(b"POST %b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % after)
        assert answers.parse(seen).status in {400, 404, 405, 422}, after
    assert await service.totals() == {}


async def test_thousands_in_one_write_are_answered_in_order_and_hold_up_nobody(service: Service) -> None:
    many = 3_000
    async with connected(service) as client, connected(service) as polite:
        paths = [b"/v1/receipts/r%d" % number for number in range(many)]
        client.writer.write(b"".join(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path for path in paths))
        for _ in range(5):
            begun = time.thread_time()
            await polite.ask(post())
            assert time.thread_time() - begun < 1.0
        assert client.answers() < many  # it was while they were being answered
        await client.until(lambda: client.answers() == many, 60)
    order = [int(part.partition(b'"')[0]) for part in client.seen.split(b'"receipt":"r')[1:]]
    assert order == list(range(many))


async def test_a_long_url_is_414_and_a_long_header_431(unharmed: Service) -> None:
    """A head that is not ASCII may be less long: as text it may take four times as many bytes."""
    long, emoji = b"x" * 17_000, "\U0001f600".encode()
    for head, status in (
        (b"POST /v1/counters/" + long + b" HTTP/1.1\r\nHost: h\r\n", 414),
        (b"GET /v1/counters?name=" + long + b" HTTP/1.1\r\nHost: h\r\n", 414),
        (HEAD + b"X: " + b"y" * 9_000 + b"\r\n", 431),
        (HEAD + b"y" * 9_000 + b": x\r\n", 431),
        (HEAD + b"".join([b"X%d: %b\r\n" % (number, emoji * 250) for number in range(30)]), 431),
    ):
        assert (await unharmed.raw(head + b"\r\n")).status == status, head[:30]


async def test_a_request_that_breaks_off_counts_nothing(unharmed: Service) -> None:
    for data in [
        HEAD + b'Content-Length: 12\r\n\r\n{"delta": 1',
        HEAD + b"Content-Length: 12\r\n\r\n{}",
        HEAD + b"Content-Length: 12\r\n\r\n",
        HEAD + b"Content-Length: 12\r\nExpect: 100-continue\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n",
        CHUNKED + b"9\r\n{}",
        CHUNKED,
        HEAD,
        HEAD[:30],
        b"POST /v1/increments HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n" + b'{"counter": "there"}\n',
    ]:
        answer = await unharmed.send(data, hang_up=True)
        assert b" 2" not in answer.partition(b"\r\n")[0].replace(b"100 Continue", b""), data


async def test_a_length_too_short_counts_nothing_of_the_rest(unharmed: Service) -> None:
    answer = await unharmed.send(HEAD + b'Content-Length: 11\r\n\r\n{"delta": 1}\r\n\r\n')
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_body_with_a_broken_end_counts_nothing(unharmed: Service) -> None:
    """Its last data and the broken end come in one piece, while the handler waits for them."""
    for end in [b"zz\r\n", b"0\r\nX y: z\r\n\r\n"]:
        async with connected(unharmed) as client:
            client.writer.write(CHUNKED + b'c\r\n{"del')
            await poll(lambda: unharmed.ingest.bodies.held)
            client.writer.write(b'ta": 1}\r\n' + end)
            await client.until(lambda: client.closed)
            assert client.seen.startswith(b"HTTP/1.1 400 "), end


async def test_a_refused_body_that_breaks_later_is_not_logged(unharmed: Service) -> None:
    async with connected(unharmed) as client:
        await client.ask(CHUNKED.replace(b"/there ", b"/there/no "))
        assert client.seen.startswith(b"HTTP/1.1 404 ")
        client.writer.write(b"zz\r\n")
        await client.until(lambda: client.closed)
        assert client.answers() == 1


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Service]:
    """Small limits."""
    async with running(tmp_path, body_timeout=0.2, max_body_bytes=2_000) as service:
        yield service
        assert await service.totals() == {}


async def test_a_body_that_does_not_come_is_408(strict: Service) -> None:
    starts = (
        HEAD + b"Content-Length: 12\r\n\r\n",
        HEAD + b'Content-Length: 12\r\n\r\n{"delta": 1',
        CHUNKED,
        CHUNKED + b"2\r\n{}\r\n",
        b"POST /v1/increments HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n",
        b"PUT /v1/counters/c/shards HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n",
    )
    answers = await asyncio.gather(*map(strict.raw, starts))
    assert [answer.status for answer in answers] == [408] * len(starts)


async def test_a_body_that_drips_is_408(strict: Service) -> None:
    reader, writer = await asyncio.open_connection(*strict.address)
    writer.write(HEAD + b"Content-Length: 100\r\n\r\n")
    answer = asyncio.create_task(reader.readline())  # the rest may be cut off, as the server stops listening
    for _ in range(90):
        writer.write(b" ")
        if (await asyncio.wait([answer], timeout=0.05))[0]:
            break
    assert (await answer).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_body_beyond_the_limit_is_413_however_it_comes(strict: Service) -> None:
    async def chunks(many: int) -> AsyncIterator[bytes]:
        for _ in range(many):
            yield b" " * 1_000

    for target in ("/v1/counters/c", "/v1/increments"):
        for body in (b" " * 2_001, b" " * 5_000_000):
            assert (await strict.post(target, body)).status == 413
        assert (await strict.post(target, chunks(3))).status == 413
    assert (await strict.ask("PUT", "/v1/counters/c/shards", b" " * 2_001)).status == 413
    announced = await strict.raw(HEAD + b"Content-Length: 2001\r\nExpect: 100-continue\r\n\r\n")
    assert announced.status == 413


async def test_an_endless_body_is_413(strict: Service) -> None:
    reader, writer = await asyncio.open_connection(*strict.address)
    writer.write(CHUNKED)
    answer = asyncio.create_task(reader.readuntil(b"\r\n"))
    while not answer.done():
        writer.write(b"3e8\r\n" + b" " * 1_000 + b"\r\n")
        await asyncio.sleep(0)
    assert b" 413 " in await answer
    writer.close()


async def test_a_bomb_is_413(strict: Service) -> None:
    for coding in ["gzip", "deflate"]:
        for size in [2_001, 1_000_000]:
            bomb = {"gzip": gzip.compress(b" " * size), "deflate": zlib.compress(b" " * size)}[coding]
            assert len(bomb) < 2_000, (size, coding)
            for target in ("/v1/counters/c", "/v1/increments"):
                assert (await strict.post(target, bomb, Content_Encoding=coding)).status == 413, (size, coding)


PACKED: Final = gzip.compress(b'{"counter": "there"}\n' * 1_000, mtime=0)  # it stands in the tests' names


async def test_what_is_not_one_whole_compressed_stream_is_400(unharmed: Service) -> None:
    for coding, body in [
        ("gzip", b'{"delta": 1}'),
        ("gzip", PACKED[:-1]),
        ("gzip", PACKED[:-8]),
        ("gzip", PACKED[:60]),
        ("gzip", PACKED[:-8] + b"\x00" * 8),
        ("gzip", PACKED + b"x"),
        ("gzip", PACKED + PACKED),
        ("gzip", b"\x1f\x8b"),
        ("deflate", b'{"delta": 1}'),
        ("deflate", zlib.compress(b"{}")[:-1]),
    ]:
        for target in ("/v1/counters/there", "/v1/increments"):
            answer = await unharmed.post(target, body, Content_Encoding=coding)
            assert (answer.status, answer.field) == (400, "Content-Encoding"), (coding, body)


async def test_an_unknown_coding_is_415(unharmed: Service) -> None:
    for coding in ["br", "zstd", "compress", "gzip, gzip", "", "nonsense"]:
        for target in ("/v1/counters/there", "/v1/increments"):
            answer = await unharmed.post(target, b"{}", Content_Encoding=coding)
            assert (answer.status, answer.field) == (415, "Content-Encoding"), coding


async def test_a_connection_goes_on_after_a_refusal(unharmed: Service) -> None:
    bad = HEAD + b"Content-Length: 2\r\n\r\n[]"
    good = b"GET /v1/counters/there HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    answer = await unharmed.send(bad + bad + good)
    assert (answer.count(b"HTTP/1.1 400 "), answer.count(b"HTTP/1.1 200 ")) == (2, 1)


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[begin : begin + size] for begin in range(0, len(body), size)]
    return b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts]) + b"0\r\n\r\n"


async def test_a_chunk_for_each_line_or_a_few_tiny_chunks_are_good(service: Service) -> None:
    for size in [16, 100, 5_000]:
        body = b'{"counter":"a"}\n' * 5_000
        answer = answers.parse(await service.send(BATCH + chunked(body, size)))
        assert (answer.status, answer.json["accepted"]) == (202, 5_000), size
    answer = answers.parse(await service.send(BATCH + chunked(b'[{"counter":"a"}]' + b" " * 500, 1)))
    assert answer.status == 202


async def test_many_tiny_chunks_are_refused(service: Service) -> None:
    for size in [1, 2, 5]:
        answer = answers.parse(await service.send(BATCH + chunked(b'[{"counter":"a"}]' + b" " * 9_000, size)))
        assert answer.status == 400, size
        assert "tiny chunks" in answer.json["detail"], size
        assert await service.value("a") == 0, size


@pytest.mark.parametrize("leaves", ["abort", "write_eof"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_lines_of_a_body_that_ends_early_do_not_count(service: Service, leaves: str, *, chunked: bool) -> None:
    lines = b'{"counter":"a"}\n{"counter":"b"}\n'
    body = b"Transfer-Encoding: chunked\r\n\r\n20\r\n" + lines if chunked else b"Content-Length: 99\r\n\r\n" + lines
    async with connected(service) as client:
        client.writer.write(b"POST /v1/increments HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-ndjson\r\n" + body)
        (connection,) = connections(service)
        await poll(lambda: connection._state)
        getattr(client.writer.transport, leaves)()
        await poll(lambda: connection not in connections(service))
    assert await service.totals() == {}


async def test_lines_do_not_count_if_a_broken_chunk_follows_before_anybody_reads_them(service: Service) -> None:
    """An event loop may read several times in one turn."""
    lines = b'{"counter":"a"}\n{"counter":"b"}\n'
    async with connected(service) as client:
        client.writer.write(BATCH.replace(b"Connection: close", b"Content-Type: application/x-ndjson"))
        (connection,) = connections(service)
        await poll(lambda: connection._request is not None and connection._request.content._waiter is not None)
        connection.data_received(b"20\r\n%b\r\n" % lines)
        connection.data_received(b"no size\r\n")
        await client.until(lambda: client.closed)
    assert answers.parse(client.seen).status == 400
    assert await service.totals() == {}
