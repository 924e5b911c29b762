"""Owns how long a client may keep a connection open while it sends no whole request or does not read its answers."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from aiohttp import StreamReader, web

from ingest.access.tenants import LOCAL
from ingest.http.problems import Problem
from ingest.http.requests import nobody
from ingest.server.aiohttp_connection import AiohttpConnection
from ingest.server.connection_limit import ConnectionLimit
from ingest.server.held_bytes import FREE
from shared.runtime import metrics

UNREAD: Final = 30.0
"""Seconds for which a client may leave unread what the kernel could not take. It gets no other answer meanwhile."""
_LAST: Final = 0
_FIRST: Final = -1


class TimedConnection(AiohttpConnection):
    """aiohttp's connection, with an end to each wait for the client."""

    __slots__ = (
        *("_begun", "_connection_limit", "_counted", "_half_closed", "_head", "_head_timeout", "_kept", "_leaves"),
        *("_payload", "_probed", "_socket", "_unread", "_unsent", "tenant"),
    )

    tenant: str
    """Whose answer is written, as far as that is known."""

    _leaves: Callable[[], None]
    """Called when the client hangs up, or may have."""
    _connection_limit: ConnectionLimit | None
    _head_timeout: float
    _begun: float
    """When the wait for a head began: for the first one with the connection, later with its first byte. 0: no wait."""
    _head: int
    """Bytes of that head that have come."""
    _counted: int
    """How many requests aiohttp had found before."""
    _payload: StreamReader | None
    """The body of the last of them."""
    _unread: float
    """Since when the client leaves something unread that we have written, or 0."""
    _unsent: int
    """Bytes that it leaves unread."""
    _kept: int
    """Bytes that came behind its current request."""
    _half_closed: bool
    """The client has said that it sends nothing more."""
    _probed: bool
    """An interim answer was written to find out whether it still reads."""
    _socket: asyncio.Transport | None
    """aiohttp forgets its transport when it closes it, though it stays open until the client has read everything."""

    def watch(self, limit: ConnectionLimit | None, head_timeout: float) -> None:
        """Call it right after the constructor, whose many arguments are aiohttp's."""
        self._connection_limit = limit
        self._head_timeout = head_timeout
        self._begun = self._unread = 0.0
        self._head = self._counted = self._unsent = self._kept = 0
        self._payload = None
        self._half_closed = self._probed = False
        self._socket = None
        self._leaves = nobody
        self.tenant = LOCAL

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._socket.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of each byte that is left unread
        self._begun = self.seconds()
        if self._connection_limit is not None and not self._connection_limit.enter(self):
            self.answer_all_with(_full)
            self.refuse_all()
            if self._socket.is_closing():
                return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._socket = None
        if self._connection_limit is not None:
            self._connection_limit.leave(self)
            self._connection_limit.held.leave(self)
        super().connection_lost(exc)
        self._leaves()
        if self._payload is not None and not self._payload.is_eof() and self._payload.exception() is None:
            self._payload.feed_eof()  # aiohttp may still wait for what the client would have sent

    def refuse_all(self) -> None:
        """Called if there are too many connections: this one is only to answer 503."""

    def heard(self, data: bytes) -> None:
        """Called with bytes after aiohttp has got them."""
        if self.requests_found() != self._counted:
            self._counted = self.requests_found()
            unanswered = self.unanswered()
            self._payload = unanswered[-1][1] if unanswered else None
            self._begun = 0.0
            self._head = 0
        elif self.is_idle() and (self._head or data.strip(b"\r\n")):
            self._begun = self._begun or self.seconds()
            self._head += len(data)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp returns None, which closes
        """A client that sends no more may still read: whole requests are answered before the connection is closed."""
        if self.is_upgraded() or self._payload is None or not self._payload.is_eof():
            return False
        if self.close_after():
            return True
        if not self.answers_a_request():
            return False
        self.close()
        return True

    def half_closed(self) -> None:
        """Called when the client has said that it sends nothing more."""
        self._half_closed = True
        self._leaves()

    def tell(self, leaves: Callable[[], None]) -> None:
        self._leaves = leaves
        if self._half_closed or self._socket is None:
            leaves()

    def has_gone(self, *, probe: bool) -> bool:
        """Whether the client has hung up while it waits for an answer. One that has closed its connection looks like
        one that sends no more but still reads, until something is written: so `probe` writes an interim answer, once.
        """
        if self._socket is None or self._socket.is_closing():
            return True
        if not self._half_closed or not probe:
            return False
        if not self._probed:
            self._probed = True
            self._socket.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif self._socket.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drop()
            return True
        return False

    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self.waits_for_request()

    def claim(self) -> tuple[int, float] | None:
        since = self.idle_since()
        if self._unread:
            return _FIRST, since
        if self.is_idle():
            return _FIRST if self._begun else _LAST, since
        request = self.current_request()
        if request is not None and not request.content.is_eof():
            return _FIRST, since
        return None

    def look(self, now: float) -> None:
        if self._socket is None:
            return
        if self._socket.is_closing() and not self._unread:
            self._unread = now
        if self._unread:
            if now - self._unread > UNREAD:
                metrics.CLOSED.labels("unread").inc()
                self.drop()
        elif self._begun and now - self._begun > self._head_timeout and self.is_idle():
            metrics.CLOSED.labels("slow").inc()
            detail = f"the headers did not arrive within {self._head_timeout:g} seconds"
            self._give_up(Problem(408, detail, close=True))

    def _give_up(self, problem: Problem) -> None:
        """Close the connection. The problem is written only if the client had begun a request: otherwise the client
        would take it for the answer to its next one.
        """
        if self._head and self.transport is not None:
            self.transport.write(problem.written())
        self.force_close()

    def drop(self) -> None:
        self.abandon()
        if self._socket is not None:
            self._socket.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.seconds()
        self._unsent = 0 if self._socket is None else self._socket.get_write_buffer_size()
        self._hold_all()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread = 0.0
        self._unsent = 0
        self._hold_all()

    def keep(self, size: int) -> None:
        """Called with the bytes that are kept now of what came behind the current request."""
        kept = size if size > FREE else 0
        if kept != self._kept:
            self._kept = kept
            self._hold_all()

    def _hold_all(self) -> None:
        if self._connection_limit is not None and self._socket is not None:
            self._connection_limit.held.hold(self, self.tenant, self._unsent + self._kept)


async def _full(_: web.BaseRequest) -> web.StreamResponse:
    metrics.OVERLOADED.inc()
    return Problem(
        503, "too many clients are connected: try again later", headers={"Retry-After": "1"}, close=True
    ).response()
