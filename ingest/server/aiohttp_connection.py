"""Owns our use of aiohttp's connection beyond its documentation. No other module touches its private attributes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import aiohttp
from aiohttp import StreamReader, web
from aiohttp.http import HttpVersion10, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage

from shared.model.errors import SettingsError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

USED: Final = (
    *("_close", "_current_request", "_force_close", "_handle_request", "_keepalive_timeout", "_loop", "_messages"),
    *("_next_keepalive_close_time", "_process_keepalive", "_request_count", "_request_handler", "_task_handler"),
    *("_upgraded", "_waiter", "writing_paused"),
)
_WAITER: Final[Any] = web.RequestHandler.__dict__.get("_waiter")
SUPPORTED: Final = "aiohttp>=3.14.4,<3.15"


def check_aiohttp() -> None:
    """Raise `SettingsError` if the installed aiohttp lacks an attribute that we use. Without them requests would not
    pass the door, and clients could keep connections open for ever.
    """
    if lacking := [name for name in USED if not hasattr(web.RequestHandler, name)]:
        raise SettingsError(
            f"aiohttp {aiohttp.__version__} does not work with Countersink ({', '.join(lacking)} is missing):"
            f" pip install '{SUPPORTED}'"
        )


class AiohttpConnection(web.RequestHandler):
    """aiohttp's connection, with methods that name its private state."""

    __slots__ = ()

    @property
    def _waiter(self) -> "asyncio.Future[None] | None":  # an attribute of aiohttp's class
        return _WAITER.__get__(self)  # type: ignore[no-any-return]

    @_waiter.setter
    def _waiter(self, waiter: "asyncio.Future[None] | None") -> None:
        """Set by aiohttp each time when it begins to wait for a request."""
        _WAITER.__set__(self, waiter)
        if waiter is not None:
            self._loop.call_soon(self.waits_again)

    def waits_again(self) -> None:
        """Called soon after aiohttp has begun to wait for a request."""
        raise NotImplementedError

    def seconds(self) -> float:
        """The time of the event loop."""
        return self._loop.time()

    def waits_alone(self) -> bool:
        """Whether aiohttp waits for a request of which no byte has come."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._messages

    def waits_for_request(self) -> bool:
        waiter = self._waiter
        return self._request_count == 0 if waiter is None else not waiter.done()

    def answers_a_request(self) -> bool:
        return self._waiter is None and self._task_handler is not None

    def requests_found(self) -> int:
        """How many requests aiohttp has found since the connection was made."""
        return self._request_count

    def unanswered(self) -> list[tuple[object, StreamReader]]:
        """The requests that wait to be handled, with their bodies."""
        return self._messages  # type: ignore[return-value] # the heads differ by kind

    def current_request(self) -> web.BaseRequest | None:
        return self._current_request

    def is_upgraded(self) -> bool:
        return bool(self._upgraded)

    def is_ending(self) -> bool:
        return self._close or self._force_close

    def close_after(self) -> bool:
        """Close the connection once the request that waits to be handled is answered. False if none waits."""
        if not self._messages:
            return False
        message, payload = self._messages[-1]
        if isinstance(message, RawRequestMessage):
            self._messages[-1] = (
                message._replace(should_close=True, version=max(message.version, HttpVersion10)),
                payload,
            )
        return True

    def end_body(self, body: StreamReader, before: int) -> None:
        """Forget what aiohttp has found since it had found so many requests. If that was an error, it was in `body`."""
        for _ in range(self._request_count - before):
            message, _ = self._messages.pop()
            if not isinstance(message, RawRequestMessage) and not body.is_eof():
                body.set_exception(BadHttpMessage("the body does not match its headers"))
                body.feed_eof()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log what went wrong, unless it is a body that is not HTTP: after a refusal aiohttp reads the rest of a body,
        and would log a traceback of what it finds.
        """
        if not isinstance(kw.get("exc_info"), BadHttpMessage):
            super().log_exception(*args, **kw)

    def answer_all_with(self, handler: object) -> None:
        self._request_handler = handler  # type: ignore[assignment] # any handler

    def idle_since(self) -> float:
        """A time by which connections can be ordered: the longer unused, the smaller."""
        return self._next_keepalive_close_time

    def restart_keepalive(self) -> None:
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout

    def abandon(self) -> None:
        """Make aiohttp handle no further request."""
        self._force_close = True

    def is_busy(self) -> bool:
        """Whether a request is under way that aiohttp knows nothing of."""
        return False

    def handler_of(self, request: web.BaseRequest, handler: Handler, *, is_http: bool) -> Handler:
        """What answers this request, in place of `handler`. Asked once for each request that aiohttp has read.

        Not `is_http`: aiohttp could not read it as a request, and `handler` says so.
        """
        raise NotImplementedError

    def _handle_request(
        self, request: web.BaseRequest, start_time: float | None, request_handler: Handler
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        is_http = request_handler is self._request_handler
        handler = self.handler_of(request, request_handler, is_http=is_http)
        return super()._handle_request(request, start_time, handler)

    def _process_keepalive(self) -> None:
        if self.is_busy():  # aiohttp thinks that the connection is idle
            self.restart_keepalive()
        super()._process_keepalive()
