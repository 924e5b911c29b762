"""A TCP proxy between a client and a server, which can lose answers to requests that were passed on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, host: str) -> None:
        self._host, _, self._port = host.partition(":")
        self._deaf = False
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""

    def lose_answers(self) -> None:
        """From now on requests reach the server, and no answer comes back."""
        self._deaf = True

    def cut(self) -> None:
        """End all connections. Those made later work again."""
        self._deaf = False
        for writer in self._writers:
            writer.transport.abort()

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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                if not (answers and self._deaf):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass  # the other side has ended it, or we have
        finally:
            writer.transport.abort()


@asynccontextmanager
async def proxy(host: str) -> AsyncIterator[Proxy]:
    one = Proxy(host)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    one.address = f"127.0.0.1:{port}"
    async with server:
        yield one
        one.cut()
