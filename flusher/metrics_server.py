"""What a flusher that runs apart says of itself over HTTP: /healthz and /metrics."""

import socket
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.runtime.metrics import REGISTRY

PATHS: Final = ("/healthz", "/metrics")
CLOSING: Final = 1.0
"""Seconds for a request that is under way."""


async def serve_status(
    sock: socket.socket, refuse: Callable[[web.BaseRequest], web.Response | None], *, metrics: bool = True
) -> web.ServerRunner:
    """Answer on a bound socket until the runner's `cleanup`. Without `metrics`, /healthz alone. `refuse` returns the
    answer to a request that may not be served.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        response = refuse(request) or _answer(request, PATHS if metrics else PATHS[:1])
        response.headers["Server"] = "Countersink"  # instead of versions of aiohttp and Python
        return response

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=CLOSING)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    return runner


def _answer(request: web.BaseRequest, paths: Sequence[str]) -> web.Response:
    if request.method not in {"GET", "HEAD"}:
        return web.Response(status=405, headers={"Allow": "GET"})
    if request.path not in paths:
        return web.Response(status=404, text=f"there is {' and '.join(paths)}\n")
    if request.path == "/healthz":
        return web.Response(text='{"status":"alive"}\n', content_type="application/json")
    return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
