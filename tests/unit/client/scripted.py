"""A server that answers what a test tells it to, and remembers what it was asked."""

import asyncio
import contextlib
import inspect
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from countersink import AsyncClient
from tests.http.both_ways import poll

RECEIPT = {"accepted": 1, "receipt": "r"}
COUNTER = {"name": "a", "value": 1, "applied": 1, "pending": 0, "exact": True, "shards": 1, "exists": True}
COUNTER |= {"as_of": "2026-01-01T00:00:00Z"}
FAST = 0.01
WHOLE = 60.0
"""A flush sends at once, so that no pause of the machine divides what is sent together."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes = b""


Step = Callable[[], web.StreamResponse] | Callable[["Asked"], web.StreamResponse] | str
Script = list[Step]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Scripted:
    """Takes the steps one by one; the last one for ever. A step may be 'cut' or 'hang', or look at the request."""

    script: Script
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_asked(self, times: int = 1) -> None:
        await poll(lambda: len(self.asked) >= times)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        asked = Asked(request.method, request.raw_path, dict(request.headers), json.loads(body) if body else None, body)
        self.asked.append(asked)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if step == "hang":
            await self.release.wait()
        if isinstance(step, str):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return step(asked) if inspect.signature(step).parameters else step()  # type: ignore[call-arg] # as it says


def says(status: int, body: Any = None, **headers: str) -> Callable[[], web.StreamResponse]:
    """Headers as keywords: Retry_After."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.Response(status=status, body=content, headers=named)


def problem(status: int, detail: str, **headers: str) -> Callable[[], web.StreamResponse]:
    return says(status, {"type": "about:blank", "status": status, "detail": detail}, **headers)


def accepted(**more: Any) -> Callable[[], web.StreamResponse]:
    return says(202, RECEIPT | more)


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """The URL of a server that does this with each connection."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def saying(said: bytes) -> Serve:
    """Says this when it has been asked, whatever it was asked, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    return serve


async def asked_on(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of the next request."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))


@contextlib.asynccontextmanager
async def asking(*script: Step, **options: Any) -> AsyncIterator[tuple[Scripted, AsyncClient]]:
    """A scripted server, and a client of it with these options."""
    async with scripted(*script) as server, AsyncClient(server.url, **options) as client:
        yield server, client


@contextlib.asynccontextmanager
async def scripted(*script: Step) -> AsyncIterator[Scripted]:
    server = Scripted(list(script))
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=1)
    await runner.setup()
    sock = socket.create_server(("127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    await web.SockSite(runner, sock).start()
    try:
        yield server
    finally:
        server.release.set()
        await runner.cleanup()
