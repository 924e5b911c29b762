"""Owns one connection: which of its requests go the short way, in which order, and until when it stays open."""

import asyncio
import contextlib
from typing import Final

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from ingest.access.tenants import LOCAL, tenant_of
from ingest.http.problems import Problem
from ingest.publishing.batch import Batch
from ingest.server.connection_limit import Crowd
from ingest.server.fast_path import Lane
from ingest.server.slow_clients import Patient

LONGEST_LINE: Final = 16_384
"""Bytes in a request's first line: a name of 400 bytes may be percent-encoded, and a query may hold many."""
LONGEST_HEADER: Final = 8_192
"""Bytes in the name and value of one header. Another number than LONGEST_LINE: the parser's error says no more."""
_UNKNOWN: Final = -1


class Connection(Patient):
    """aiohttp's, but for what it says of a request that is not HTTP, and for requests that the lane takes.

    A request goes the short way when it is alone: aiohttp waits for one, and has read nothing of the next. What arrives
    behind it is held until it is answered, and no more is read meanwhile.
    """

    __slots__ = ("_draft", "_drains", "_ended", "_ends", "_held", "_lane", "_owed", "_tenant")

    _lane: Lane | None
    _owed: int
    """Bytes that aiohttp is to get until the next request begins; not known any more after what is hard to follow."""
    _draft: Batch | None
    """Of the request that is on the short way."""
    _drains: bool
    """Its answer is written, and the client does not read it."""
    _held: bytes
    _ended: "asyncio.Future[None] | None"
    """Somebody waits for the end of that request."""
    _ends: bool
    """The client will send nothing after that request."""
    _tenant: str

    def use(self, lane: Lane | None, crowd: Crowd | None, head_timeout: float) -> "Connection":
        """Beside a constructor with aiohttp's many arguments; before the connection is made."""
        self.watch(crowd, head_timeout)
        self._lane = lane
        self._owed = 0 if lane is not None else _UNKNOWN
        self._draft = None
        self._drains = False
        self._held = b""
        self._ended = None
        self._ends = False
        self._tenant = LOCAL
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._tenant = tenant_of(transport)

    def data_received(self, data: bytes) -> None:
        if self._draft is not None:
            self._hold(data)
        elif self._owed or not data or not self._begin(data):
            self._pass_on(data)

    def _begin(self, data: bytes) -> bool:
        if self._lane is None or not self.waits_alone() or self.writing_paused:
            return False
        begun = self._lane.begin(data, self._tenant)
        if begun is None:
            return False
        self._draft, durable = begun
        self._begun = 0.0
        durable.add_done_callback(self._answer)
        return True

    def _answer(self, durable: "asyncio.Future[None]") -> None:
        assert self._draft is not None  # noqa: S101
        assert self._lane is not None  # noqa: S101
        answer = self._lane.end(self._draft, durable)
        transport = self.transport
        if answer is None:
            self.force_close()
        elif transport is not None and not transport.is_closing():
            transport.write(answer)
            if self.writing_paused:  # who does not read his answers gets no further
                self._drains = True
                return
        self._go_on()

    def _go_on(self) -> None:
        self._draft = None
        self._drains = False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        held, self._held = self._held, b""
        if self.is_ending():  # nobody else does: aiohttp's task is gone
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
        """To aiohttp, and keep count of where its next request begins."""
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

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp closes, and says so with None
        self._ends = self._draft is not None
        return self._ends or super().eof_received()

    def refuse_all(self) -> None:
        self._lane = None

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
    """Bytes of the body of this one request that are still to come."""
    head = data.find(b"\r\n\r\n") + 4
    if not isinstance(message, RawRequestMessage) or head < 4 or not data[:1].isalpha():  # noqa: PLR2004
        return _UNKNOWN
    if message.chunked or message.upgrade or message.method == "CONNECT":
        return _UNKNOWN
    length = message.headers.get("Content-Length", "0")
    if not (length.isascii() and length.isdigit()):
        return _UNKNOWN
    return max(head + int(length) - len(data), _UNKNOWN)
