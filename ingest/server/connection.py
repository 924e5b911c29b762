"""Owns one connection: which of its requests take the fast path, their order, and when it is closed."""

import asyncio
import contextlib
from time import perf_counter
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from ingest.access.caller import CALLER
from ingest.access.credentials import NONE, credentials_in
from ingest.access.door import Door
from ingest.access.rules import route_of
from ingest.access.tenants import peer_of
from ingest.http.cors import shared
from ingest.http.problems import Problem, problem_of
from ingest.http.requests import target_of
from ingest.server import heads
from ingest.server.aiohttp_connection import Handler
from ingest.server.chunked_body import ChunkedBody
from ingest.server.connection_limit import ConnectionLimit
from ingest.server.fast_path import FastPath
from ingest.server.request_log import LOG
from ingest.server.request_times import answered, timed
from ingest.server.slow_clients import TimedConnection

MOST_HELD: Final = 16_384
"""Bytes behind a request after which no more are read. While they are, we notice that a client hangs up."""


class Connection(TimedConnection):
    """aiohttp's connection with a door before each request, with the fast path, and with problems for invalid HTTP.

    It has one request at a time. A request takes the fast path when it comes alone; all others go to aiohttp, each up
    to its last byte. Bytes that follow it are held until it has been answered; if they are many, no more are read. So
    answers keep the order of their requests, and a client can make us keep no more than one head and what was read at
    once.
    """

    __slots__ = (
        *("_answering", "_door", "_drains", "_ended", "_ends", "_fast_path", "_flaw", "_held"),
        *("_last", "_owed", "_peer", "_read", "_whole"),
    )

    _door: Door
    _fast_path: FastPath | None
    _owed: int
    """Bytes of the current body that aiohttp still has to get."""
    _last: ChunkedBody | None
    """The body of the last request of this connection: only aiohttp's parser can tell where it ends."""
    _read: bytearray
    """The head that has not come whole."""
    _whole: bool
    """aiohttp has got the whole request, and does not wait for another one yet."""
    _flaw: Problem | None
    """Why the current request is refused, though the parser takes it."""
    _answering: bool
    """Whether a request is on the fast path."""
    _drains: bool
    """The answer to a request of the fast path is written, but the client does not read it."""
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
        self._owed = 0
        self._last = None
        self._read = bytearray()
        self._answering = self._whole = self._drains = self._ends = False
        self._ended = self._flaw = None
        self._held = b""
        self._peer = ""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peer = self.tenant = peer_of(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not data:
            super().data_received(data)  # aiohttp calls it so to go on with what its parser has
        elif self._answering or self._drains or self._whole:
            self._hold(data)
        elif self._owed or self._read or self._last or not self._begin(data):
            self._pass_on(data)

    def _begin(self, data: bytes) -> bool:
        if self._fast_path is None or LOG.left or not self.waits_alone() or self.writing_paused:
            return False
        request = self._fast_path.recognise(data)
        if request is None:
            return False
        self._begun, begun = 0.0, perf_counter()
        method, path, head, _ = request
        try:
            caller = self._door.enter(method, path, "", head.said, self._peer)
            self.tenant = caller.tenant
            done, end = self._fast_path.begin(request, caller, begun)
        except Exception as error:
            problem = problem_of(error)
            self._refuse(problem)
            answered(route_of(method, path), problem.status, begun)
        else:
            self._answering = True
            done.add_done_callback(lambda done: self._answer(end(done)))
        return True

    def _refuse(self, problem: Problem) -> None:
        """Answer a request of the fast path of which nothing was counted."""
        if self.transport is not None:
            self.transport.write(problem.written())
        self.restart_keepalive()
        self._drains = self.writing_paused
        if problem.close:
            self.force_close()

    def handler_of(self, request: web.BaseRequest, handler: Handler, *, is_http: bool) -> Handler:
        path, query = target_of(request)
        said = credentials_in(request.headers) if is_http else NONE
        page = self._door.shares_with(path, said)
        try:
            caller = request[CALLER] = self._door.enter(request.method, path, query, said, self._peer)
            self.tenant = caller.tenant
            if self._flaw is not None:
                raise self._flaw
        except Exception as error:
            problem = problem_of(error)
            problem.close |= not is_http
            handler = problem.answer
        return timed(shared(handler, page) if page else handler, request.method, path)

    def _answer(self, answer: bytes | None) -> None:
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
        self._answering = self._drains = False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self.is_ending():  # aiohttp's task is gone, so nobody else would close it
            self.force_close()
        if self.transport is None:
            return
        self.restart_keepalive()
        self._release()

    def _hold(self, data: bytes) -> None:
        if self.is_ending() or not data:
            return
        self._held += data
        self.keep(len(self._held))
        self._stop_reading_much()

    def resume_reading(self, resume_parser: bool = True) -> None:
        super().resume_reading(resume_parser)
        self._stop_reading_much()

    def _stop_reading_much(self) -> None:
        if len(self._held) > MOST_HELD and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _pass_on(self, data: bytes) -> None:
        """Give aiohttp the bytes of one request, and hold the others."""
        while data and not self._whole:
            if self._last is not None:
                self._pass_on_last(data, self._last)
                return
            size = self._size_of_part(data)
            if heads.is_too_long(self._read):
                self._refuse(heads.too_long(self._read))
                return
            part, data = data[:size], data[size:]
            before = self.requests_found()
            super().data_received(part)
            self.heard(part)
            if self._owed:
                self._owed -= len(part)
            elif self.requests_found() > before:
                self._begin_body(*self.unanswered()[-1])
            else:
                continue
            self._whole = not self._owed and self._last is None
        self._hold(data)

    def _pass_on_last(self, data: bytes, last: ChunkedBody) -> None:
        """Give aiohttp bytes of a body whose end only its parser finds."""
        for piece in last.pieces(data):
            before = self.requests_found()
            super().data_received(piece)
            self.end_body(last.body, before)

    def _size_of_part(self, data: bytes) -> int:
        """Bytes up to the end of the head or the body that they are part of."""
        if self._owed:
            return self._owed
        begun = len(self._read)
        self._read += data
        end = self._read.find(b"\r\n\r\n", max(begun - 3, 0))
        if end < 0:
            return len(data)
        del self._read[end + 4 :]
        return len(self._read) - begun

    def _begin_body(self, message: object, body: StreamReader) -> None:
        """A head has just ended."""
        self._flaw = heads.flaw_of(self._read) if isinstance(message, RawRequestMessage) else None
        self._read = bytearray()
        if isinstance(message, RawRequestMessage) and not (
            message.chunked or message.upgrade or message.method == "CONNECT" or self._flaw
        ):
            length = message.headers.get("Content-Length", "0")
            if length.isascii() and length.isdigit():
                self._owed = int(length)
                return
        # aiohttp's parser takes the last header of a chunked body for one of the next request, so there must be none.
        self._last = ChunkedBody(body)
        self.close_after()

    def waits_again(self) -> None:
        if self.waits_alone():  # uvloop may have read the next request meanwhile
            self._whole = False
            if not self._answering:
                self._release()

    def _release(self) -> None:
        held, self._held = self._held, b""
        self.keep(0)
        if held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(held)
        answering = self._whole or self._answering or (self._last is not None and self._last.body.is_eof())
        if self._ends and not self._held and not answering:
            self.force_close()

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp returns None, which closes
        self.half_closed()
        self._ends = self._answering or bool(self._held)
        return self._ends or super().eof_received()

    def refuse_all(self) -> None:
        self._fast_path = None

    def is_idle(self) -> bool:
        return not self._answering and super().is_idle()

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
        return self._answering

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        if self._answering:
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
            return heads.line_too_long(exc).response()
        if status < 500:  # noqa: PLR2004 (a client's fault)
            return heads.not_http(status).response()
        return super().handle_error(request, status, exc, message)
