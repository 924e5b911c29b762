"""Clients that send slowly, do not read, are too many, or close their sending side, on both paths."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from countersink_server.serve.run import serve_status
from shared.config.settings import Settings
from shared.http import server as http_server
from shared.http.heads import LONGEST_HEAD
from shared.http.server import HttpServer, listen
from shared.runtime import metrics
from tests.http import answer, contract
from tests.http.both_ways import ODD, Client, connected, connections, poll, post
from tests.http.faults import Gate
from tests.http.service import Service, running

HEAD_TIMEOUT: Final = 0.3
MOST: Final = 8
GET: Final = b"GET /v1/counters/c?max_age=0 HTTP/1.1\r\nHost: h\r\n\r\n"
LARGE: Final = b"GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n"
PROBE: Final = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
CLOSE: Final = b"Connection: close\r\n"
STARTS: Final = (b"P", b"POST /v1/counters/c HTTP/1.1\r\n", post()[:-1], b"GET / HTTP/1.1\r\nX: y")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LOOK", 0.05)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, head_timeout=HEAD_TIMEOUT, max_connections=MOST) as it:
        yield it


def open_now(service: Service) -> int:
    return len(connections(service))


def closed(why: str) -> float:
    return float(metrics.CLOSED.labels(why).get())


def problem_in(client: Client) -> int:
    found = answer.parse(client.seen)
    contract.check_problem(found)
    assert found.headers["Connection"] == "close"
    return found.status


@pytest.mark.parametrize("after", [b"", post(), post(None, ODD), GET])
async def test_a_head_that_does_not_end_is_408(service: Service, after: bytes) -> None:
    loop = asyncio.get_running_loop()

    async def is_told(start: bytes) -> None:
        begun = loop.time()
        async with connected(service) as client:
            if after:
                await client.ask(after)
                client.seen = b""
            client.writer.write(start)
            await client.until(lambda: client.closed)
            assert HEAD_TIMEOUT < loop.time() - begun < 10
            assert problem_in(client) == 408

    await asyncio.gather(*map(is_told, STARTS))


async def test_a_head_that_drips_is_408(service: Service) -> None:
    loop = asyncio.get_running_loop()
    async with connected(service) as client:
        begun = loop.time()
        client.writer.write(STARTS[1] + b"X: ")
        while not client.closed:
            client.writer.write(b"y")
            await asyncio.sleep(0.02)
            assert loop.time() - begun < 10
        assert problem_in(client) == 408


@pytest.mark.parametrize("said", [b"", b"\r\n", b"\r\n" * 20])
async def test_a_client_that_sends_no_request_gets_no_answer(service: Service, said: bytes) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with connected(service) as client:
        client.writer.write(said)
        await client.until(lambda: client.closed)
        assert HEAD_TIMEOUT < loop.time() - begun < 10
        assert client.seen == b""


@pytest.mark.parametrize("request_", [post(), post(None, ODD), GET, post() + b"\r\n"])
async def test_a_client_that_has_sent_a_request_may_idle_longer(service: Service, request_: bytes) -> None:
    async with connected(service) as client:
        for _ in range(2):
            await client.ask(request_)
            await asyncio.sleep(2 * HEAD_TIMEOUT)
            assert not client.closed


async def test_a_head_in_pieces_has_a_longest_length(service: Service) -> None:
    async with connected(service) as client:
        client.writer.write(STARTS[1])
        for number in range(2 * LONGEST_HEAD // 4_000):
            if client.closed or client.seen:
                break
            client.writer.write(b"X%d: %b\r\n" % (number, b"y" * 4_000))
            await asyncio.sleep(0.005)
        await client.until(lambda: client.closed)
        assert problem_in(client) == 431


@pytest.mark.parametrize(("uri", "status"), [(b"/version", 431), (b"/version?" + b"y" * LONGEST_HEAD, 414)])
async def test_a_whole_head_that_is_too_long_is_not_parsed(service: Service, uri: bytes, status: int) -> None:
    headers = b"".join([b"X%d: %b\r\n" % (number, b"y" * 4_000) for number in range(1 + LONGEST_HEAD // 4_000)])
    async with connected(service) as client:
        client.writer.write(b"GET %b HTTP/1.1\r\nHost: h\r\n%b\r\n" % (uri, headers))
        await client.until(lambda: client.closed)
        assert problem_in(client) == status


@contextlib.asynccontextmanager
async def deaf(service: Service) -> AsyncIterator[asyncio.StreamWriter]:
    """A client that reads nothing, and for whom the kernel keeps little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, service.address)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        yield writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await reader.read()


@pytest.mark.parametrize(
    "request_", [LARGE, LARGE.replace(b"openapi.json", b"metrics"), GET.replace(b"?max_age=0", b"")]
)
async def test_a_client_that_does_not_read_is_dropped(
    service: Service, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr(http_server, "UNREAD", 0.3)
    before = closed("unread")
    async with deaf(service) as writer:
        writer.write(request_ * (20_000_000 // (50_000 if request_ is LARGE else 400)))
        async with asyncio.timeout(60):
            while closed("unread") == before:
                assert all(its.get_write_buffer_size() < 1_000_000 for its in _sockets(service))
                await asyncio.sleep(0.01)
    await poll(lambda: not open_now(service))


def _sockets(service: Service) -> list[asyncio.Transport]:
    return [front.transport for front in connections(service)]


async def test_a_client_that_does_not_read_the_last_answer_is_dropped_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not so long that we would have to stop, but the connection can't be closed before it is read."""
    monkeypatch.setattr(http_server, "UNREAD", 0.3)
    before = closed("unread")
    async with deaf(service) as writer:
        await poll(lambda: _sockets(service))
        _sockets(service)[0].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        writer.write(LARGE.replace(b"\r\n\r\n", b"\r\n" + CLOSE + b"\r\n"))
        await poll(lambda: closed("unread") > before)
    await poll(lambda: not open_now(service))


@contextlib.asynccontextmanager
async def many(service: Service, count: int, each: Callable[[Client], Awaitable[None]]) -> AsyncIterator[list[Client]]:
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for number in range(count):
            client = await stack.enter_async_context(connected(service))
            clients.append(client)
            await poll(lambda number=number: open_now(service) == number + 1)
            await each(client)
        yield clients


async def test_one_too_many_gets_in_for_the_one_that_was_idle_longest(service: Service) -> None:
    async with many(service, MOST, lambda client: client.ask(post())) as clients:
        await clients[0].ask(GET)
        for number in range(3):
            async with connected(service) as client:
                await client.ask(post())
                gone = clients[1 + number]
                await gone.until(lambda gone=gone: gone.closed)  # type: ignore[misc]
                assert sum(client.closed for client in clients) == 1 + number
            await poll(lambda: open_now(service) < MOST)
            late = await _opened(service)
            clients.append(late)
        for client in clients[MOST:]:
            client.writer.close()
    assert await service.value("c") == MOST + 3


async def _opened(service: Service) -> Client:
    before = open_now(service)
    client = Client(*await asyncio.open_connection(*service.address))
    await poll(lambda: open_now(service) == before + 1)
    await client.ask(GET)
    return client


async def test_slow_clients_are_dropped_before_idle_ones(service: Service) -> None:
    async with many(service, MOST - 2, lambda client: client.ask(post())) as clients:
        slow = [Client(*await asyncio.open_connection(*service.address)) for _ in range(2)]
        slow[0].writer.write(b"POST /v1/counters/c HTTP/1.1\r\nHost: h\r\n")
        slow[1].writer.write(b"POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n{")
        await poll(lambda: open_now(service) == MOST)
        others = []
        for client in slow:
            others.append(Client(*await asyncio.open_connection(*service.address)))
            await client.until(lambda client=client: client.closed)  # type: ignore[misc]
            await others[-1].ask(post())
        assert not any(client.closed for client in clients)
        for client in (*slow, *others):
            client.writer.close()


async def send(client: Client) -> None:
    client.writer.write(post())


async def test_where_all_wait_for_us_places_are_kept_for_probes_and_for_counting(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(service, monkeypatch)
    async with many(service, MOST, send) as clients:
        for request, status in ((GET, 503), (PROBE, 200), (LARGE, 503), (post(name=b"c?wait=applied"), 503)):
            async with connected(service) as client:
                client.writer.write(request + PROBE)
                await client.until(lambda client=client: client.closed)  # type: ignore[misc]
                found = answer.parse(client.seen)
                assert (found.status, found.headers["Connection"], client.answers()) == (status, "close", 1)
        async with contextlib.AsyncExitStack() as stack:
            flood = [await stack.enter_async_context(connected(service)) for _ in range(http_server.SPARE + 20)]
            await poll(lambda: sum(client.closed for client in flood) >= 20)
            assert not any(client.seen for client in flood)
        async with connected(service) as late:
            await send(late)
            await poll(lambda: service.ingest.publishing.admission.held == MOST + 1)
            gate.open.set()
            await late.until(lambda: late.closed)
            assert late.seen.startswith(b"HTTP/1.1 202 ")
        for client in clients:
            await client.until(lambda client=client: client.answers() == 1)  # type: ignore[misc]
    await poll(lambda: open_now(service) < MOST)
    assert await service.value("c") == MOST + 1


STREAM: Final = b"GET /v1/counters/c/watch HTTP/1.1\r\nHost: h\r\n\r\n"
WAITS: Final = post(name=b"c?wait=applied&timeout=60")


@pytest.mark.parametrize("request_", [STREAM, WAITS], ids=["stream", "wait"])
async def test_one_client_cannot_take_all_places_for_long(service: Service, request_: bytes) -> None:
    async def ask(client: Client) -> None:
        client.writer.write(request_)
        if request_ is STREAM:
            await client.until(lambda: client.answers() == 1)

    async with many(service, MOST, ask) as clients:
        await poll(lambda: sum(b" 429 " in client.seen for client in clients) >= MOST // 2)
        for asked in (PROBE, post(), GET):
            async with connected(service) as client:
                await client.ask(asked)
                assert client.seen.startswith(b"HTTP/1.1 20")


async def test_the_oldest_stream_of_the_greediest_client_makes_room(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(service, monkeypatch)
    streams = []
    for number in (2, 3, 3):  # its last part of the address
        local = (f"127.0.0.{number}", 0)
        streams.append(Client(*await asyncio.open_connection(*service.address, local_addr=local)))
        await streams[-1].ask(STREAM)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(MOST - len(streams)):
            await send(await stack.enter_async_context(connected(service)))
        await poll(lambda: service.ingest.publishing.admission.held == MOST - len(streams))
        for gone in (1, None):
            late = await stack.enter_async_context(connected(service))
            await late.ask(GET)
            assert late.seen.startswith(b"HTTP/1.1 200 ")
            if gone is not None:
                await streams[gone].until(lambda: streams[1].closed)
                assert [stream.closed for stream in streams] == [False, True, False]
                late.writer.close()
                await poll(lambda: open_now(service) < MOST)
        gate.open.set()
    for stream in streams:
        stream.writer.close()


@pytest.mark.parametrize("request_", [post(), post(b'{"delta": 1}'), post(None, ODD)])
async def test_a_client_that_closed_its_sending_side_is_answered(service: Service, request_: bytes) -> None:
    for pieces in ([1], [1, 1], [3], [60]):
        reader, writer = await asyncio.open_connection(*service.address)
        for piece in pieces:
            writer.write(request_ * piece)
            await asyncio.sleep(0.001)
        writer.write_eof()
        async with asyncio.timeout(60):
            seen = await reader.read()
        assert seen.count(b"HTTP/1.1 202 ") == sum(pieces), pieces
        writer.close()
        await poll(lambda: not open_now(service))


async def test_a_client_that_closed_its_sending_side_gets_a_slow_answer(service: Service) -> None:
    reader, writer = await asyncio.open_connection(*service.address)
    writer.write(post(name=b"c?wait=applied") + post(name=b"c?wait=applied"))
    writer.write_eof()
    async with service.applying(), asyncio.timeout(60):
        seen = await reader.read()
    assert seen.count(b"HTTP/1.1 200 ") == 2
    writer.close()


async def test_half_a_request_of_a_client_that_closed_its_sending_side_does_not_count(service: Service) -> None:
    for number, rest in enumerate((b"POST /v1/counters/d HTTP/1.1\r\n", b"POS", b"\r\n"), 1):
        seen = await service.send(post(None, ODD * (number % 2)) + GET + rest, hang_up=True)
        assert seen.count(b"HTTP/1.1 2") == 2, rest
        assert await service.totals() == {"c": number}


@pytest.mark.parametrize("when", [0, 0.001, 0.01])
async def test_a_client_that_breaks_off_leaves_nothing_open(service: Service, when: float) -> None:
    reset = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # what a close is with this option
    halves = (post()[:-1], post(b"{}")[:-1], post(b"{}", ODD)[:-1])
    for request in (post(), post() * 50, post(None, ODD) * 50, LARGE * 200, *halves):
        before = open_now(service)
        sock = socket.create_connection(service.address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.send(request)
        await asyncio.sleep(when)
        sock.close()
        await poll(lambda before=before: open_now(service) == before)
    assert (await service.incr("c")).status == 202


# A flusher's port is as hard to fill.

FlusherPort = tuple[HttpServer, tuple[str, int]]
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: h\r\n"


@contextlib.asynccontextmanager
async def flusher_port(refusal: web.Response | None = None) -> AsyncIterator[FlusherPort]:
    """With this answer of the door."""

    async def refuse(_: web.BaseRequest) -> web.Response | None:
        return refusal

    sock = listen("127.0.0.1", 0)
    settings = Settings(broker="sqlite:///never.db", head_timeout=HEAD_TIMEOUT, max_connections=MOST)
    server = await serve_status(sock, refuse, settings)
    yield server, sock.getsockname()
    await server.stop(1.0)


async def told(address: tuple[str, int], data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    async with asyncio.timeout(60):
        seen = await reader.read()
    writer.close()
    return seen


@pytest.mark.parametrize("data", [b"", HEALTH, HEALTH + b"Content-Length: 9\r\n\r\n", HEALTH + b"\r\n"])
async def test_connections_to_a_flusher_that_do_not_end_keep_nobody_out(data: bytes) -> None:
    async with flusher_port() as (server, address):
        held = []
        for _ in range(3 * (MOST + http_server.SPARE)):
            held.append(await asyncio.open_connection(*address))
            held[-1][1].write(data)
            assert len(server.fronts) <= MOST + http_server.SPARE
        seen = await told(address, HEALTH + CLOSE + b"\r\n")
        assert seen.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nServer: Countersink\r\n" in seen
        assert seen.endswith(b'{"status":"alive"}\n')
        for reader, writer in held if data == HEALTH else ():
            async with asyncio.timeout(60):
                assert (await reader.read())[9:12] in {b"", b"408"}
            writer.close()
        for _, writer in held:
            writer.transport.abort()


async def test_what_is_not_http_is_400_for_a_flusher_too() -> None:
    async with flusher_port() as (_, address):
        seen = await told(address, HEALTH + b"nonsense\r\n\r\n" + HEALTH + CLOSE + b"\r\n")
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in seen
    assert seen.count(b"HTTP/1.1 ") == 1


async def test_a_flusher_asks_its_door() -> None:
    async with flusher_port(web.Response(status=401)) as (_, address):
        assert (await told(address, HEALTH + CLOSE + b"\r\n")).startswith(b"HTTP/1.1 401 ")
