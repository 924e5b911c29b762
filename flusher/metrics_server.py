"""What a flusher that runs apart says of itself over HTTP: /healthz and /metrics."""

import socket
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.runtime import metrics

CLOSING: Final = 1.0
"""Seconds for a request that is under way."""


async def serve_status(sock: socket.socket) -> web.ServerRunner:
    """Answer on a bound socket until the runner's `cleanup`."""
    runner = web.ServerRunner(web.Server(_answer, access_log=None), shutdown_timeout=CLOSING)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    return runner


async def _answer(request: web.BaseRequest) -> web.Response:
    if request.method not in {"GET", "HEAD"}:
        return web.Response(status=405, headers={"Allow": "GET"})
    if request.path == "/healthz":
        return web.json_response({"status": "alive"})
    if request.path == "/metrics":
        return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
    return web.Response(status=404, text="there are /healthz and /metrics\n")
