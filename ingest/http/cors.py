"""Tells browsers that a page of another origin may send a request and see its answer."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from ingest.http.responses import SECURE, Answer

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

PREFLIGHT: Final = "OPTIONS"
_MAY: Final = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding, Idempotency-Key, "
    "traceparent, tracestate, "
    "ce-specversion, ce-id, ce-source, ce-type, ce-time, ce-subject, ce-dataschema, ce-counter, ce-delta",
    "Access-Control-Max-Age": "600",
    **SECURE,
}


def shared(handler: Handler, origin: str) -> Handler:
    """A handler for requests of pages of this origin, who may see its answers. If a browser only asks whether a page
    may send a request, it does not call `handler`.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == PREFLIGHT and request.headers.get("Access-Control-Request-Method") == "POST":
            return web.Response(status=204, headers=_MAY | _headers(origin))
        response = await handler(request)
        response.headers.update(_headers(origin))
        if isinstance(response, Answer):
            response.is_plain = False
        return response

    return answer


def _headers(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": "Retry-After",
        "Vary": "Origin",
    }
