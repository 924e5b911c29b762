"""Owns one connection: which of its requests take the fast path, their order, and when it is closed."""

import asyncio
import contextlib
from typing import Final

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from ingest.access.door import CALLER, Door
from ingest.access.tenants import peer_of
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import target_of
from ingest.publishing.batch import Batch
from ingest.server.aiohttp_connection import Handler
from ingest.server.connection_limit import ConnectionLimit
from ingest.server.fast_path import FastPath
from ingest.server.slow_clients import TimedConnection

LONGEST_LINE: Final = 16_384
"""Most bytes in the first line of a request. Names of 400 bytes may be percent-encoded, and a query may hold many."""
LONGEST_HEADER: Final = 8_192
"""Most bytes in the name and value of one header. It differs from LONGEST_LINE, as only the number in the parser's
error tells which limit was exceeded.
"""
_UNKNOWN: Final = -1


class Connection(TimedConnection):
    """aiohttp's connection with a door before each request, with the fast path, and with problems for invalid HTTP.

    A request takes the fast path when it comes alone, while aiohttp waits for a request. Bytes that follow it are held
    until it has been answered, and no more are read meanwhile. So answers keep the order of their requests.
    """

    __slots__ = ("_door", "_draft", "_drains", "_ended", "_ends", "_fast_path", "_held", "_owed", "_peer")

    _door: Door
    _fast_path: FastPath | None
    _owed: int
    """Bytes of the current request that aiohttp still has to get. _UNKNOWN once that can't be told: then aiohttp gets
    all that comes.
    """
    _draft: Batch | None
    """The draft with the request that is on the fast path."""
    _drains: bool
    """The answer to that request is written, but the client does not read it."""
    _held: bytes
    _ended: "asyncio.Future[None] | None"
    """Set at the end of that request, if somebody waits for it."""
    _ends: bool
    """Whether the client has said that it sends nothing more."""
    _peer: str

    def use(
        self, door: Door, fast_path: FastPath | None, limit: ConnectionLimit | None, head_timeout: float
    ) -> "Connection":
        """Call it right after the constructor, whose many arguments are aiohttp's."""
        self.watch(limit, head_timeout)
        self._door = door
        self._fast_path = fast_path
        self._owed = 0 if fast_path is not None else _UNKNOWN
        self._draft = None
        self._drains = False
        self._held = b""
        self._ended = None
        self._ends = False
        self._peer = ""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peer = peer_of(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._draft is not None:
            self._hold(data)
        elif self._owed or not data or not self._begin(data):
            self._pass_on(data)

    def _begin(self, data: bytes) -> bool:
        if self._fast_path is None or not self.waits_alone() or self.writing_paused:
            return False
        post = self._fast_path.recognise(data)
        if post is None:
            return False
        self._begun = 0.0
        try:
            path, head, _ = post
            caller = self._door.enter("POST", path, "", head.headers, self._peer)
            self._draft, durable = self._fast_path.begin(post, caller)
        except Exception as error:
            self._refuse(problem_of(error))
        else:
            durable.add_done_callback(self._answer)
        return True

    def _refuse(self, problem: Problem) -> None:
        """Answer a request of the fast path of which nothing was counted."""
        if self.transport is not None:
            self.transport.write(problem.written())
        if problem.close:
            self.force_close()
        else:
            self.restart_keepalive()

    def handler_of(self, request: web.BaseRequest, handler: Handler, *, is_http: bool) -> Handler:
        path, query = target_of(request)
        try:
            request[CALLER] = self._door.enter(request.method, path, query, request.headers, self._peer)
        except Exception as error:
            problem = problem_of(error)
            problem.close |= not is_http
            return problem.answer
        return handler

    def _answer(self, durable: "asyncio.Future[None]") -> None:
        assert self._draft is not None  # noqa: S101
        assert self._fast_path is not None  # noqa: S101
        answer = self._fast_path.end(self._draft, durable)
        transport = self.transport
        if answer is None:
            self.force_close()
        elif transport is not None and not transport.is_closing():
            transport.write(answer)
            if self.writing_paused:  # a client that does not read its answers has to wait
                self._drains = True
                return
        self._go_on()

    def _go_on(self) -> None:
        self._draft = None
        self._drains = False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        held, self._held = self._held, b""
        if self.is_ending():  # aiohttp's task is gone, so nobody else would close it
            self.force_close()
        if self.transport is None:
            return
        self.restart_keepalive()
        if held:
            self.transport.resume_reading()
            self.data_received(held)
        elif self._ends:
            self.force_close()

    def _hold(self, data: bytes) -> None:
        if self.is_ending() or not data:
            return
        if not self._held and self.transport is not None:
            self.transport.pause_reading()
        self._held += data

    def _pass_on(self, data: bytes) -> None:
        """Give bytes to aiohttp, and keep track of where its next request begins."""
        if self._owed or not data:
            if self._owed > 0:
                self._owed = max(self._owed - len(data), _UNKNOWN)
            super().data_received(data)
            self.heard(data)
            return
        before = len(self.unanswered())
        super().data_received(data)
        self.heard(data)
        unanswered = self.unanswered()
        self._owed = _owed(data, unanswered[-1][0]) if len(unanswered) == before + 1 else _UNKNOWN

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp returns None, which closes
        self._ends = self._draft is not None
        return self._ends or super().eof_received()

    def refuse_all(self) -> None:
        self._fast_path = None

    def is_idle(self) -> bool:
        return self._draft is None and super().is_idle()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._drains:
            self._go_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._held = b""
        if self._drains:
            self._go_on()

    def is_busy(self) -> bool:
        return self._draft is not None

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        if self._draft is not None:
            self.close()
            self._ended = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._ended
        await super().shutdown(timeout)

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


def _owed(data: bytes, message: object) -> int:
    """Bytes of the body that are still to come, of the one request that begins in `data`."""
    head = data.find(b"\r\n\r\n") + 4
    if not isinstance(message, RawRequestMessage) or head < 4 or not data[:1].isalpha():  # noqa: PLR2004
        return _UNKNOWN
    if message.chunked or message.upgrade or message.method == "CONNECT":
        return _UNKNOWN
    length = message.headers.get("Content-Length", "0")
    if not (length.isascii() and length.isdigit()):
        return _UNKNOWN
    return max(head + int(length) - len(data), _UNKNOWN)
