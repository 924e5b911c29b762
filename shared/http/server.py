"""Listens on a socket, answers requests, and stops when they are answered."""

import asyncio
import socket
from functools import partial
from typing import Final

from aiohttp import web

from shared.http.front import LINGER, Front, Handler, Plain, lending
from shared.http.heads import LONGEST_HEAD
from shared.http.watchdog import Refuse, Watchdog, problem

BACKLOG: Final = 1024
_NEVER: Final = 1e9
"""Seconds: the front closes idle connections, not aiohttp."""
_CANCELLED: Final = 0.1
"""Seconds for handlers to end that were cancelled."""


class HttpServer:
    """Answers requests on a bound socket from `start` until `stop`."""

    def __init__(
        self,
        handler: Handler,
        most: int,
        head_timeout: float,
        idle_timeout: float,
        *,
        plain: Plain | None = None,
        refuse: Refuse = problem,
    ) -> None:
        """`handler` answers what is not `plain`; `refuse` makes the answer to what is not HTTP. `most`: connections."""
        self.aiohttp = web.Server(
            lending(handler),
            access_log=None,
            keepalive_timeout=_NEVER,
            lingering_time=LINGER,
            max_line_size=LONGEST_HEAD,
            max_field_size=LONGEST_HEAD,
            auto_decompress=False,
        )
        self.watchdog = Watchdog(self.aiohttp, most, head_timeout, idle_timeout, plain=plain, refuse=refuse)
        self._server: asyncio.AbstractServer | None = None

    async def start(self, sock: socket.socket) -> None:
        make = partial(Front, self.watchdog)
        self._server = await asyncio.get_running_loop().create_server(make, sock=sock, backlog=BACKLOG)

    async def stop(self, timeout: float) -> None:
        """Listen no more, and end all connections: those with a request when it is answered, or after this time."""
        if self._server is not None:
            self._server.close()
        try:
            await self.watchdog.drain(timeout)
            await self.aiohttp.shutdown(_CANCELLED)
        finally:
            self.watchdog.stop()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address. Port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
