"""A flusher's port: as hard to fill as ingest's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
from aiohttp import web

from flusher.metrics_server import serve_status
from shared.config.settings import Settings
from shared.http import watchdog
from shared.http.server import HttpServer, listen

HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: h\r\n"
CLOSE: Final = b"Connection: close\r\n\r\n"
MOST: Final = 8


async def start(refusal: web.Response | None = None) -> tuple[HttpServer, tuple[str, int]]:
    async def refuse(_: web.BaseRequest) -> web.Response | None:
        return refusal

    sock = listen("127.0.0.1", 0)
    settings = Settings(broker="sqlite:///never.db", head_timeout=0.3, max_connections=MOST)
    return await serve_status(sock, refuse, settings), sock.getsockname()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[HttpServer, tuple[str, int]]]:
    monkeypatch.setattr(watchdog, "LOOK", 0.05)
    server, address = await start()
    yield server, address
    await server.stop(1.0)


async def ask(address: tuple[str, int], data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    async with asyncio.timeout(60):
        seen = await reader.read()
    writer.close()
    return seen


@pytest.mark.parametrize("data", [b"", HEALTH, HEALTH + b"Content-Length: 9\r\n\r\n", HEALTH + b"\r\n"])
async def test_connections_that_do_not_end_keep_nobody_out(
    served: tuple[HttpServer, tuple[str, int]], data: bytes
) -> None:
    server, address = served
    held = []
    for _ in range(3 * (MOST + watchdog.SPARE)):
        held.append(await asyncio.open_connection(*address))
        held[-1][1].write(data)
        assert len(server.watchdog.fronts) <= MOST + watchdog.SPARE
    seen = await ask(address, HEALTH + CLOSE)
    assert seen.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nServer: Countersink\r\n" in seen
    assert seen.endswith(b'{"status":"alive"}\n')
    for reader, writer in held if data == HEALTH else ():
        async with asyncio.timeout(60):
            assert (await reader.read())[9:12] in {b"", b"408"}
        writer.close()
    for _, writer in held:
        writer.transport.abort()


async def test_what_is_not_http_is_400_as_everywhere(served: tuple[HttpServer, tuple[str, int]]) -> None:
    seen = await ask(served[1], HEALTH + b"nonsense\r\n\r\n" + HEALTH + CLOSE)
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in seen
    assert seen.count(b"HTTP/1.1 ") == 1


async def test_the_door_is_asked() -> None:
    server, address = await start(web.Response(status=401))
    assert (await ask(address, HEALTH + CLOSE)).startswith(b"HTTP/1.1 401 ")
    await server.stop(1.0)
