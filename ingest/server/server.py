"""Owns how ingest listens on a socket, limits its connections, and stops."""

import asyncio
import socket
from typing import Final

from aiohttp import web

from ingest.access.door import Door
from ingest.server.aiohttp_connection import Handler, check_aiohttp
from ingest.server.connection import Connection
from ingest.server.connection_limit import ConnectionLimit, room_for
from ingest.server.fast_path import FastPath
from ingest.server.heads import LONGEST_HEADER, LONGEST_LINE
from ingest.server.request_times import UNDER_WAY
from shared.config.settings import Settings

IDLE: Final = 75.0
"""Seconds after which an unused connection is closed."""
CLOSE_LINGER: Final = 2.0
"""Seconds for a client that is still sending its body to read why it was refused."""


class _Server(web.Server):
    door: Door
    fast_path: FastPath | None = None
    connection_limit: ConnectionLimit | None = None
    head_timeout = 0.0

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs).use(
            self.door, self.fast_path, self.connection_limit, self.head_timeout
        )

    async def shutdown(self, timeout: float | None = None) -> None:
        await super().shutdown(timeout)
        if self.connection_limit is not None:
            self.connection_limit.stop()


async def serve(
    door: Door, routes: Handler, fast_path: FastPath | None, sock: socket.socket, settings: Settings
) -> web.ServerRunner:
    """Answer requests on a bound socket until `cleanup` of the runner, which lets requests under way finish."""
    check_aiohttp()
    server = _Server(
        routes,
        access_log=None,
        keepalive_timeout=IDLE,
        lingering_time=CLOSE_LINGER,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_HEADER,
        auto_decompress=False,
    )
    server.door = door
    server.fast_path = fast_path
    server.connection_limit = ConnectionLimit(room_for(settings.max_connections), asyncio.get_running_loop())
    UNDER_WAY.limits.add(server.connection_limit)
    server.head_timeout = settings.head_timeout
    runner = web.ServerRunner(server, shutdown_timeout=settings.drain_timeout)
    await runner.setup()
    await web.SockSite(runner, sock, backlog=1024).start()
    return runner


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address. Port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
