"""A TCP proxy between a client and a server: it can lose answers to requests that were passed on, hold everything
back as a server does that is frozen, be slow, and be gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, host: str) -> None:
        self._host, _, self._port = host.partition(":")
        self._deaf = False
        self._awake = asyncio.Event()
        self._awake.set()
        self._closed = False
        self._latency = 0.0
        self._rate = float("inf")
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._own_port = 0
        self.lost = 0
        """Pieces of answers that did not come back."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._own_port}"

    def lose_answers(self) -> None:
        """From now on requests reach the server, and no answer comes back."""
        self._deaf = True

    def cut(self) -> None:
        """End all connections. Those made later work again."""
        self._deaf = False
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Connections are taken, and nothing comes through in either direction."""
        self._awake.clear()

    def thaw(self) -> None:
        self._awake.set()

    def slow(self, latency: float, rate: float) -> None:
        """Each piece takes so many seconds, and another one for each `rate` bytes of it."""
        self._latency, self._rate = latency, rate

    def fast(self) -> None:
        self.slow(0.0, float("inf"))

    async def go(self) -> None:
        """No connection is left, and none is taken."""
        assert self._server
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def come(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._own_port)
        self._own_port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End all connections, and let nobody in until `open`."""
        self._closed = True
        self.cut()

    def open(self) -> None:
        self._closed = False

    def lead_to(self, host: str) -> None:
        """Another server from now on; nobody keeps a connection to the old one."""
        self._host, _, self._port = host.partition(":")
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection(self._host, int(self._port))
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, OSError):
                return  # nobody is there
            raise
        self._writers |= {writer, upstream}
        try:
            await asyncio.gather(self._pass_on(reader, upstream), self._pass_on(upstream_reader, writer, answers=True))
        finally:
            for one in (writer, upstream):
                self._writers.discard(one)
                one.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        try:
            while data := await reader.read(65_536):
                await self._awake.wait()
                if delay := self._latency + len(data) / self._rate:
                    await asyncio.sleep(delay)
                if answers and self._deaf:
                    self.lost += 1
                else:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass  # the other side has ended it, or we have
        finally:
            writer.transport.abort()


@asynccontextmanager
async def proxy(host: str) -> AsyncIterator[Proxy]:
    one = Proxy(host)
    await one.come()
    try:
        yield one
    finally:
        one.thaw()
        await one.go()
