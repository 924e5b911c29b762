"""Owns which requests have a span of their own."""

from aiohttp import web

from ingest.access.rules import route_of
from ingest.http.requests import target_of
from ingest.server.aiohttp_connection import Handler
from shared.runtime.request_context import REQUEST
from shared.runtime.traces import Traces, sampled_in


def traced(handler: Handler, traces: Traces | None) -> Handler:
    """The same handler. A request whose `traceparent` is sampled has a span, unless it is a stream. The door is in
    front of it, so nobody can cause spans who may not send the request.
    """
    if traces is None:
        return handler

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        context = REQUEST.get()
        parent = sampled_in(request.headers.get("traceparent", ""))
        if context is None or parent is None:
            return await handler(request)
        span = traces.request(parent, request.method, route_of(request.method, target_of(request)[0]))
        if span.trace.sampled:
            context.span = span.trace
        try:
            response = await handler(request)
        except BaseException as error:
            span.end(error)
            raise
        span.end(status=response.status)
        return response

    return answer
