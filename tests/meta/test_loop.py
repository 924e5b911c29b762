"""The loop of the tests leaves no connection open."""

import asyncio
import contextlib
import socket

from tests.world.patient_loop import PatientLoop


def test_a_connection_that_nobody_closes_ends_with_the_loop() -> None:
    """So is one that a server accepts while it closes."""
    client = socket.socket()

    async def play() -> None:
        accepted = asyncio.Event()

        class Nobody(asyncio.Protocol):
            def connection_made(self, _: asyncio.BaseTransport) -> None:
                accepted.set()

        server = await asyncio.get_running_loop().create_server(Nobody, "127.0.0.1", 0)
        client.connect(server.sockets[0].getsockname())
        await accepted.wait()
        server.close()

    with client, contextlib.suppress(ConnectionResetError):
        client.settimeout(10)
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(play())
        assert client.recv(1) == b""
