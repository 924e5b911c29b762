"""Owns what we use of aiohttp's connection beyond what it documents. Nobody else touches its private attributes."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import aiohttp
from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from shared.model.errors import SettingsError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

USED: Final = (
    *("_close", "_current_request", "_force_close", "_handle_request", "_keepalive_timeout", "_loop", "_messages"),
    *("_next_keepalive_close_time", "_process_keepalive", "_request_count", "_request_handler", "_task_handler"),
    *("_upgraded", "_waiter", "writing_paused"),
)
SUPPORTED: Final = "aiohttp>=3.14.4,<3.15"


def check_aiohttp() -> None:
    """Raise `SettingsError` if the installed aiohttp is made in another way. Without what we use of it, clients could
    keep connections open for ever.
    """
    if lacking := [name for name in USED if not hasattr(web.RequestHandler, name)]:
        raise SettingsError(
            f"aiohttp {aiohttp.__version__} does not work with Countersink ({', '.join(lacking)} is missing):"
            f" pip install '{SUPPORTED}'"
        )


class AiohttpConnection(web.RequestHandler):
    """aiohttp's connection, with names for its state."""

    __slots__ = ()

    def seconds(self) -> float:
        """The time of the event loop."""
        return self._loop.time()

    def waits_alone(self) -> bool:
        """Aiohttp waits for a request, and has read nothing of it."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._messages

    def waits_for_request(self) -> bool:
        waiter = self._waiter
        return self._request_count == 0 if waiter is None else not waiter.done()

    def answers_a_request(self) -> bool:
        return self._waiter is None and self._task_handler is not None

    def requests_found(self) -> int:
        """How many heads aiohttp has read since the connection was made."""
        return self._request_count

    def unanswered(self) -> list[tuple[object, StreamReader]]:
        """Requests that nobody has begun to answer, with their bodies."""
        return self._messages  # type: ignore[return-value] # the heads differ by kind

    def current_request(self) -> web.BaseRequest | None:
        return self._current_request

    def is_upgraded(self) -> bool:
        return bool(self._upgraded)

    def is_ending(self) -> bool:
        return self._close or self._force_close

    def close_after_last(self) -> bool:
        """Close the connection after the answer to the last of the unanswered requests. False if there is none."""
        if not self._messages:
            return False
        message, payload = self._messages[-1]
        if isinstance(message, RawRequestMessage):
            self._messages[-1] = (message._replace(should_close=True), payload)
        return True

    def answer_all_with(self, handler: object) -> None:
        self._request_handler = handler  # type: ignore[assignment] # any handler

    def idle_since(self) -> float:
        """A time that is later for a connection that was used later."""
        return self._next_keepalive_close_time

    def restart_keepalive(self) -> None:
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout

    def abandon(self) -> None:
        """Have aiohttp begin nothing more."""
        self._force_close = True

    def is_busy(self) -> bool:
        """Whether a request is under way that aiohttp does not know of."""
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
        if self.is_busy():  # aiohttp takes the connection for idle
            self.restart_keepalive()
        super()._process_keepalive()
