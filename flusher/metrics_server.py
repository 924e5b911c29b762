"""What a flusher that runs apart says of itself over HTTP: /healthz and /metrics."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.config.settings import Settings
from shared.http.answers import SECURE
from shared.http.server import ADMINS, SPARE, HttpServer, room_for
from shared.runtime.metrics import REGISTRY

PATHS: Final = ("/healthz", "/metrics")
CLOSING: Final = 1.0
"""Seconds for a request that is under way."""


async def serve_status(
    sock: socket.socket,
    refuse: Callable[[web.BaseRequest], Awaitable[web.Response | None]],
    settings: Settings,
    *,
    metrics: bool = True,
) -> HttpServer:
    """Answer on a bound socket until `stop`. Without `metrics`, /healthz alone. `refuse` returns the answer to a
    request that may not be served.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        response = await refuse(request) or _answer(request, PATHS if metrics else PATHS[:1])
        response.headers["Server"] = SECURE["Server"]
        return response

    most = room_for(min(ADMINS, settings.max_connections), ADMINS + SPARE)
    server = HttpServer(answer, most, settings.head_timeout, settings.idle_timeout)
    await server.start(sock)
    return server


def _answer(request: web.BaseRequest, paths: Sequence[str]) -> web.Response:
    if request.method not in {"GET", "HEAD"}:
        return web.Response(status=405, headers={"Allow": "GET"})
    if request.path not in paths:
        return web.Response(status=404, text=f"this port has only {' and '.join(paths)}\n")
    if request.path == "/healthz":
        return web.Response(text='{"status":"alive"}\n', content_type="application/json")
    return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
