"""A whole Countersink in this process, on a file and a port of its own, and ways to ask it."""

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from flusher.cleanup import CounterRemover
from flusher.dead_letters.desk import OneAtATime
from flusher.flush.flusher import Flusher
from flusher.jobs import Worker
from flusher.service import make_flusher, make_worker
from ingest.service import Ingest
from shared.config.settings import Settings
from shared.fleet import FleetView
from shared.http.server import listen
from shared.runtime.retry import Stop
from shared.wiring.process import Parts, connect
from tests.http import answer, contract
from tests.http.answer import Answer
from tests.world.scraping import Scrape

T = TypeVar("T")
Body = bytes | AsyncIterator[bytes] | None


def url_name(name: str) -> str:
    return quote(name, safe="")


class Service:
    """Each answer is held against the OpenAPI document before a test sees it."""

    def __init__(
        self,
        parts: Parts,
        flusher: Flusher,
        worker: Worker,
        *,
        ingest: Ingest,
        sock: socket.socket,
        session: aiohttp.ClientSession,
    ) -> None:
        self.parts = parts
        self.ingest = ingest
        self._flusher = flusher
        self._worker = worker
        self.address: tuple[str, int] = sock.getsockname()
        self.url = "http://{}:{}".format(*self.address)
        self._session = session
        self._others: dict[int, aiohttp.ClientSession] = {}

    def chapter(self, kind: type[T]) -> T:
        """The object with some of the handlers."""
        (found,) = [one for one in self.ingest.chapters if isinstance(one, kind)]
        return found

    def _client(self, number: int) -> aiohttp.ClientSession:
        """Each at an address of its own."""
        if not number:
            return self._session
        if number not in self._others:
            self._others[number] = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(120),
                connector=aiohttp.TCPConnector(local_addr=(f"127.0.0.{1 + number}", 0)),
            )
        return self._others[number]

    async def close(self) -> None:
        for session in self._others.values():
            await session.close()

    async def ask(
        self, method: str, target: str, body: Body = None, headers: Mapping[str, str] | None = None, client: int = 0
    ) -> Answer:
        """`target` goes over the wire as it is."""
        async with self._client(client).request(
            method,
            URL(self.url + target, encoded=True),
            data=io.BytesIO(body) if isinstance(body, bytes) else body,
            headers=headers,
            allow_redirects=False,
            skip_auto_headers=("Content-Type", "Accept-Encoding"),
        ) as response:
            found = Answer(response.status, response.headers, await response.read())
        contract.check(method, target.partition("?")[0], found)
        return found

    async def get(self, target: str) -> Answer:
        return await self.ask("GET", target)

    async def post(self, target: str, body: Body = None, *, client: int = 0, **headers: Any) -> Answer:
        """Headers as keywords: Idempotency_Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("POST", target, body, named, client)

    async def incr(self, name: str, body: Body = None, query: str = "", *, client: int = 0, **headers: Any) -> Answer:
        return await self.post(f"/v1/counters/{url_name(name)}{query}", body, client=client, **headers)

    async def read(self, name: str, query: str = "?max_age=0") -> Any:
        found = await self.get(f"/v1/counters/{url_name(name)}{query}")
        assert found.status == 200, found
        return found.json

    async def value(self, name: str) -> int:
        reading = await self.read(name)
        assert reading["value"] == reading["applied"] + reading["pending"]
        value: int = reading["value"]
        return value

    async def pages(self, query: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Any]:
        """Of a list of counters."""
        token: str | None = ""
        while token is not None:
            answer = await self.ask("GET", f"/v1/counters?{query}&page_token={url_name(token)}", headers=headers)
            yield answer.json
            token = answer.json["next_page_token"]

    async def totals(self) -> dict[str, int]:
        """Of everything there is."""
        pages = [page["counters"] async for page in self.pages("max_age=0&limit=1000")]
        return {item["name"]: item["value"] for page in pages for item in page}

    async def scrape(self) -> Scrape:
        return Scrape((await self.get("/metrics")).body.decode())

    async def send(self, data: bytes, *, hang_up: bool = False) -> bytes:
        """Bytes over a connection of its own; what came back before the server closed it."""
        reader, writer = await asyncio.open_connection(*self.address)
        with contextlib.closing(writer):
            writer.write(data)
            if hang_up:
                writer.write_eof()
            with contextlib.suppress(ConnectionError):
                return await reader.read()
        return b""

    async def raw(self, data: bytes) -> Answer:
        """The answer to bytes that need not be HTTP, after which the server must close."""
        found = answer.parse(await self.send(data))
        if found.status >= 400:
            contract.check_problem(found)
        return found

    async def apply(self) -> None:
        """Flush all that is pending."""
        while await self._flusher.pull_once(0):
            await self._flusher.flush_once()

    async def work(self) -> None:
        """Do the tasks of jobs, until none is left."""
        while leases := await self.parts.tasks.pull(10, 0):
            for lease in leases:
                await self._worker.work(lease.task)
            await self.parts.tasks.ack([lease.token for lease in leases])

    async def remove(self) -> None:
        """What is left of deleted counters goes, as far as it can, and at once."""
        if self._flusher.removal is not None:
            await CounterRemover(self.parts.store, self.parts.overlay, self.parts.clock).remove_once()

    @contextlib.asynccontextmanager
    async def applying(self) -> AsyncIterator[None]:
        """A flusher runs meanwhile."""
        stop = Stop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flusher.run(stop, 5))
            try:
                yield
            finally:
                stop.set()


@contextlib.asynccontextmanager
async def running(
    folder: Path, *, short: bool = True, apart: bool = False, looks: FleetView | None = None, **changes: Any
) -> AsyncIterator[Service]:
    """A service with these settings; nothing is applied until somebody asks for it. `apart`: administrators have a port
    of their own.
    """
    settings = Settings(
        **{
            "broker": f"sqlite:///{folder / 'countersink.db'}",
            "flush_interval": 0.0,
            "drain_timeout": 1.0,
            "hosts": ("h",),  # as tests call the service
            **changes,
        }
    )
    parts = connect(settings, makes=True)
    ingest = Ingest(
        replace(parts, looks=looks),
        settings,
        letters=OneAtATime(parts, settings),
        version=contract.VERSION,
        short=short,
    )
    flusher = make_flusher(parts, settings)
    worker = make_worker(parts, settings)
    sock = listen("127.0.0.1", 0)
    await ingest.start(sock, listen("127.0.0.1", 0) if apart else None)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session:
            service = Service(parts, flusher, worker, ingest=ingest, sock=sock, session=session)
            try:
                yield service
            finally:
                await service.close()
    finally:
        await ingest.stop()
        await parts.close()
