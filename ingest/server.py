"""Owns the socket's side of ingest: connections, malformed HTTP, and stopping."""

import socket
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from ingest.problems import Problem
from ingest.routes import Routes

LONGEST_LINE: Final = 16_384
"""Bytes in a request's first line: a name of 400 bytes may be percent-encoded, and a query may hold many."""
LONGEST_HEADER: Final = 8_192
"""Bytes in the name and value of one header. Another number than LONGEST_LINE: the parser's error says no more."""
IDLE: Final = 75.0
"""Seconds after which an unused connection is closed."""
LINGER: Final = 2.0
"""Seconds for a client to read why its body was refused, while it is still sending it."""


class _Connection(web.RequestHandler):
    """aiohttp's, but for what it says of a request that is not HTTP."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, LineTooLong):
            if LONGEST_HEADER in exc.args:
                return Problem(431, f"a header is longer than {LONGEST_HEADER} bytes", close=True).response()
            return Problem(414, f"the URL is longer than {LONGEST_LINE} bytes", close=True).response()
        if status < 500:  # noqa: PLR2004 (a client's fault)
            return Problem(status, "the request is not valid HTTP", close=True).response()
        return super().handle_error(request, status, exc, message)


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


async def serve(routes: Routes, sock: socket.socket, drain_timeout: float) -> web.ServerRunner:
    """Answer on a bound socket until the runner's `cleanup`, which lets the requests under way finish."""
    server = _Server(
        routes,
        access_log=None,
        keepalive_timeout=IDLE,
        lingering_time=LINGER,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_HEADER,
        auto_decompress=False,
    )
    runner = web.ServerRunner(server, shutdown_timeout=drain_timeout)
    await runner.setup()
    await web.SockSite(runner, sock, backlog=1024).start()
    return runner


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock
