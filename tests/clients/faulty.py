"""An HTTP proxy between a client and a service: it remembers each request, and does faults to some of them."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

_EVENT: Final = re.compile(rb"\ndata:.*\n\n")
HELD: Final = 600.0


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """The names are in lower case."""
    body: bytes
    at: float


@dataclass
class Fault:
    """What is done to the next requests of this method; with `has`, to those whose paths or bodies have this text."""

    kind: str
    times: int = 1
    method: str = "POST"
    has: str = ""
    status: int = 0
    retry_after: int = 0
    body: str | None = None
    count: Mapping[str, int] = field(default_factory=dict)


class Faulty:
    """Passes everything on, except for what its faults are about."""

    def __init__(self, port: int, count: Callable[[Mapping[str, int]], object]) -> None:
        self._port = port
        self._count = count
        self._connections: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.not_before: dict[bytes, float] = {}
        """For each body, the time before which it must not come again."""
        self.early: list[bytes] = []
        """Bodies that came again all the same."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the client. It has one of its own to the service, from its first request on."""
        self._connections.add(writer)
        upstream: asyncio.StreamWriter | None = None
        relay: asyncio.Task[None] | None = None
        doing = _Doing()
        try:
            while True:
                head, asked = await self._request(reader)
                fault = self._fault(asked)
                if fault is not None and fault.kind == "cut":
                    return
                if fault is not None and fault.kind == "hold":
                    await asyncio.sleep(HELD)
                    return
                if fault is not None and fault.kind == "answer":
                    writer.write(self._answer(fault, asked))
                    await writer.drain()
                    continue
                if upstream is None:
                    back, upstream = await asyncio.open_connection("127.0.0.1", self._port)
                    self._connections.add(upstream)
                    relay = asyncio.create_task(self._relay(back, writer, doing))
                doing.fault = fault
                upstream.write(head + asked.body)
                await upstream.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two sides has ended it
        finally:
            for one in (writer, upstream):
                if one is not None:
                    self._connections.discard(one)
                    one.transport.abort()
            if relay is not None:
                relay.cancel()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[bytes, Asked]:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        asked = Asked(method, path, headers, body, time.monotonic())
        if asked.at < self.not_before.get(body, 0.0):
            self.early.append(body)
        self.asked.append(asked)
        return head, asked

    def _fault(self, asked: Asked) -> Fault | None:
        for fault in self.faults:
            if fault.method == asked.method and fault.has.encode() in asked.path.encode() + asked.body:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault
        return None

    def _answer(self, fault: Fault, asked: Asked) -> bytes:
        problem = json.dumps({"type": "about:blank", "status": fault.status, "detail": "of the proxy"})
        body = (problem if fault.body is None else fault.body).encode()
        more = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after else ""
        if fault.retry_after and asked.body:
            self.not_before[asked.body] = time.monotonic() + fault.retry_after
        return f"HTTP/1.1 {fault.status} As told\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _relay(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, doing: "_Doing") -> None:
        shown = b""
        with suppress(OSError):
            while data := await back.read(65_536):
                if doing.kind == "lose":
                    break
                writer.write(data)
                await writer.drain()
                shown += data
                if doing.kind == "cut_later" and _EVENT.search(shown):
                    break
        writer.transport.abort()
        if doing.fault is not None and doing.fault.count:
            await asyncio.to_thread(self._count, doing.fault.count)

    def cut(self) -> None:
        """End all connections."""
        for writer in self._connections:
            writer.transport.abort()


@dataclass
class _Doing:
    """What is done to the present request of a connection."""

    fault: Fault | None = None

    @property
    def kind(self) -> str:
        return self.fault.kind if self.fault is not None else ""


@asynccontextmanager
async def faulty(port: int, count: Callable[[Mapping[str, int]], object]) -> AsyncIterator[Faulty]:
    """A proxy to the service at this port of this machine. `count` is called with what a fault says to count."""
    one = Faulty(port, count)
    server: Any = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
        one.cut()
