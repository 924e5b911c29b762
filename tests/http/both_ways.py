"""The same bytes to a server with the short way and to one without, and what they answer."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from shared.http.front import Front
from shared.http.server import HttpServer
from shared.runtime import metrics
from tests.http import answer
from tests.http.service import Service, running

END: Final = b"GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
ODD: Final = b"TE: x\r\n"
"""The fast path leaves a request with this header to aiohttp."""
Varying = tuple[re.Pattern[bytes], bytes]
"""What is new in each answer, and what stands for it."""
_VARIES: Final[tuple[Varying, ...]] = (
    (re.compile(rb"Date: [^\r]+"), b"Date: then"),
    (re.compile(rb'(?<="as_of":")[^"]+'), b"then"),
    (re.compile(rb'(?<=[".])[0-9a-z]{26}(?=[".])'), b"minted"),
)
_VARIES_BETWEEN_SERVICES: Final[tuple[Varying, ...]] = (
    (re.compile(rb'(?<=["./])[0-9a-z]{26}(?=[".\r])'), b"minted"),
    (re.compile(rb'"updated_at":"[^"]+"'), b'"updated_at":"then"'),
)


def post(body: bytes | None = None, headers: bytes = b"", name: bytes = b"c") -> bytes:
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    return b"POST /v1/counters/%b HTTP/1.1\r\nHost: h\r\n%b%b\r\n%b" % (name, headers, length, body or b"")


def batch(body: bytes, headers: bytes = b"") -> bytes:
    return post(body, headers).replace(b"/v1/counters/c ", b"/v1/increments ")


def server_of(service: Service) -> HttpServer:
    assert service.ingest.server is not None
    return service.ingest.server


def by_aiohttp(service: Service) -> int:
    """Requests that did not go the short way."""
    return server_of(service).aiohttp.requests_count


def connections(service: Service) -> list[Front]:
    return [*server_of(service).fronts]


async def poll(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def refused() -> tuple[float, float]:
    """As the metrics count it."""
    return metrics.REJECTED.get(), metrics.OVERLOADED.get()


class Client:
    """A connection on which one can wait for what has not come yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.seen = b""
        self.closed = False
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(65_536):
                self.seen += data
                self._more.set()
        self.closed = True
        self._more.set()

    async def until(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._more.clear()
                await self._more.wait()

    def answers(self) -> int:
        return self.seen.count(b"HTTP/1.1 ")

    async def ask(self, data: bytes) -> None:
        """And wait for the answer."""
        before = self.answers()
        self.writer.write(data)
        await self.until(lambda: self.answers() > before)


@contextlib.asynccontextmanager
async def connected(service: Service) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection(*service.address))
    try:
        yield client
    finally:
        client.writer.close()
        client._task.cancel()
        with contextlib.suppress(ConnectionError):
            await client.writer.wait_closed()


def is_whole(seen: bytes, *, has_body: bool) -> bool:
    """Whether this is an answer, of which a stream's is its head."""
    head, end, body = seen.partition(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: (\d+)", head) if has_body else None
    return bool(end) and (length is None or len(body) >= int(length[1]))


async def ask(service: Service, data: bytes) -> answer.Answer:
    """On a connection of its own, which stays open as long as the server wants."""
    async with connected(service) as client:
        client.writer.write(data)
        await client.until(lambda: is_whole(client.seen, has_body=not data.startswith(b"HEAD ")))
        return answer.parse(client.seen)


@contextlib.asynccontextmanager
async def pair(folder: Path, **changes: Any) -> AsyncIterator[tuple[Service, Service]]:
    """With the short way, and without."""
    settings = {"body_timeout": 0.3, "max_body_bytes": 2_000} | changes
    async with (
        running(folder, **settings) as short,
        running(folder, short=False, **settings | {"broker": f"sqlite:///{folder / 'long.db'}"}) as long,
    ):
        yield short, long


async def told(service: Service, pieces: Sequence[bytes], *, patient: bool) -> bytes:
    """All that came back, without what is new in each answer. `patient`: each piece waits for the last one's answer."""
    async with connected(service) as client:
        for piece in pieces:
            before = len(client.seen)
            with contextlib.suppress(RuntimeError):  # uvloop's way to say that the connection is closed
                client.writer.write(piece)
            turns = 25 if patient else 0  # not a time, which may pass while the machine does something else
            while turns and not client.closed and len(client.seen) == before:
                await asyncio.sleep(0.002)
                turns -= not service.ingest.publishing.admission.held
            for _ in range(4):
                await asyncio.sleep(0)
        await client.until(lambda: client.closed)
        return plain(client.seen, *_VARIES_BETWEEN_SERVICES)


def plain(seen: bytes, *more: Varying) -> bytes:
    """Without what is new in each answer."""
    for pattern, text in (*_VARIES, *more):
        seen = pattern.sub(text, seen)
    return seen


async def check(services: tuple[Service, Service], pieces: Sequence[bytes], *, patient: bool = False) -> bytes:
    """What both say; raise if it is not the same."""
    before = refused()
    by_short = await told(services[0], pieces, patient=patient)
    between = refused()
    by_long = await told(services[1], pieces, patient=patient)
    after = refused()
    assert by_short == by_long, pieces
    assert [b - a for a, b in zip(before, between, strict=True)] == [
        b - a for a, b in zip(between, after, strict=True)
    ], pieces
    return by_short


async def check_totals(services: tuple[Service, Service]) -> None:
    short, long = [await service.totals() for service in services]
    assert short == long
    for service in services:
        await service.apply()
        assert await service.totals() == short
