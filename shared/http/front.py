"""The front: one protocol for each connection, for good. It reads every head, finds the end of every body, answers
plain requests itself, and lends aiohttp the connection for one other request at a time.

Why it lends. aiohttp's objects for a request and its answer cost more than all the rest of an increment, so a server
that counts reads its commonest requests itself. Two protocols that share a connection would have to agree on what is
left of it. So only one owns it: aiohttp's protocol is never the transport's. The front gives it the bytes of one
request, and all other events, and takes the next request when the answer is written. Order, bounds and time-outs have
one place. An example: a proxy sends POST, GET /metrics and POST on one connection. The front answers the first; the
bytes of the second go to aiohttp, while those of the third are held; `lending` writes the answer to its end and calls
`returned`; the front answers the third.

The rules, all of them by public API of asyncio and aiohttp:

1. A connection has one request at a time. What comes behind it is held; if that is much, no more is read.
2. aiohttp gets the bytes of one request and no others. What it would read in another way than the front, the front
   refuses (see `heads`).
3. Only the front pauses and resumes reading: aiohttp gets a transport of its own (`LentTransport`), and what it asks of
   that is one of two reasons for a pause. The other one is that much is held.
4. A refusal is written, then the client has `LINGER` seconds to read it: closing at once would reset the connection.
5. A client that has closed its sending side may still read, and gets the answer to what has come whole.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiohttp import HttpVersion11, web

from shared.http import answers
from shared.http.heads import CHUNKED, Chunks, RefusedError, check_part, lent
from shared.http.shares import peer_of, tenant_of

if TYPE_CHECKING:
    from shared.http.server import HttpServer

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
MOST_AHEAD_HELD: Final = 16_384
"""Bytes behind a request after which no more are read. While they are, we notice that a client hangs up."""
LINGER: Final = 2.0
"""Seconds for a client to read why it was refused, while what it still sends is dropped."""
LARGEST: Final = 69_632
"""Most bytes of a plain request: those of a head, and of a body that is parsed at once."""
KNOWN: Final = 2_048
"""This many plain requests of at most `REPEATED` bytes are remembered, as most clients send the same ones again."""
REPEATED: Final = 512
PATIENCE: Final = 0.05
"""Seconds for the body of a plain request, which many clients send apart from its head. Then aiohttp gets what is
there, as handlers have bounds for slow bodies.
"""
FREE, PLAIN, LENT = 0, 1, 2
"""Which part has the request: none, the front, or aiohttp."""
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")


class Plain(Protocol):
    """Answers plain requests. They are of HTTP/1.1, have come whole, and the connection stays."""

    def head(self, headers: Any) -> Any:
        """See `heads.PlainHead`."""

    def recognise(self, method: bytes, target: bytes, minor: bytes, head: Any, body: bytes) -> Any:
        """What `begin` gets; None if it is no plain request. It depends on nothing else: it is remembered, if it
        `is_usual`, that is, may be sent again.
        """

    def begin(self, request: Any, front: "Front") -> bytes | bool:
        """The answer; True if `Front.answer` will be called with it; False if aiohttp is to have the request."""


class Front(asyncio.Protocol):
    """One connection. While it has a request, `_held` is what came behind that, and `_owed` the bytes of the request
    that aiohttp still has to get. Otherwise `_held` is the beginning of the next one.
    """

    __slots__ = (
        *("_begun", "_checked", "_chunks", "_deaf", "_ended", "_full", "_held", "_inner", "_kept", "_known", "_leaves"),
        *("_needs", "_owed", "_patience", "_paused", "_probed", "_request", "_returned", "_server", "_since", "_state"),
        *("_spoilt", "_stuck", "_unread", "is_crowded", "is_stream", "peer", "tenant", "transport"),
    )

    transport: asyncio.Transport
    peer: str
    """The address of the client, or of a proxy; empty if there is none."""
    tenant: str
    """The tenant of the last request, as far as it is known."""
    is_crowded: bool
    """There is no place for it: it is answered one request, if that is one for which places are kept."""
    is_stream: bool
    """Its answer continues until the client leaves, so it may be closed to make room."""
    _begun: float
    """When the wait for a head began: at the beginning for the first one, at the first byte for others. 0: no wait."""
    _since: float
    """When the last request began or was answered."""
    _unread: float
    """Since when the client leaves something unread, or 0."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._known = server.known
        self._inner: asyncio.Protocol | None = None
        self._request: web.BaseRequest | None = None
        """The lent one that aiohttp has begun."""
        self._chunks: Chunks | None = None
        self._held = bytearray()
        self._owed = self._kept = self._checked = 0
        self._needs = 0
        """How many bytes must have come before the next look at a plain request. -1: it is not waited for any more."""
        self._patience: asyncio.TimerHandle | None = None
        self._state = FREE
        self._returned = self._probed = self._spoilt = False
        self._paused = False
        self._full = False  # aiohttp wants no more of a body for now
        self._stuck = False  # the client does not read its answers
        self._ended = False  # it sends nothing more
        self._deaf = False  # what it sends is dropped
        self._unread = 0.0
        self._leaves = nobody
        self.is_crowded = self.is_stream = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of each byte that is left unread
        self.peer = peer_of(transport)
        self.tenant = tenant_of(self.peer)
        self._begun = self._since = self._server.time()
        self._server.enter(self)
        if self.is_crowded:
            self._known = {}

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.leave(self)
        self._held.clear()
        self._deaf = True
        self._stop_waiting()
        if self._inner is not None:
            self._inner.connection_lost(cast("Exception | None", exc))
            content = None if self._request is None else self._request.content
            if content is not None and not content.is_eof() and content.exception() is None:
                content.feed_eof()  # its handler may still wait for what the client would have sent
        self._leaves()

    def data_received(self, data: bytes) -> None:
        if not (self._state or self._held or self._stuck or self._deaf):
            plain = self._known.get(data)
            if plain is not None and self._answers(plain):
                return
            used = self._take(data)
            if used == len(data):
                return
            data = data[used:]
        if self._owed > len(data) and not self._held:
            self._owed -= len(data)
            cast("asyncio.Protocol", self._inner).data_received(data)
        elif self._owed or not self._deaf:
            self._held += data
            if self._owed:
                self._pay()
            self.go_on()

    def go_on(self) -> None:
        """Begin what has come whole, until something has to be waited for."""
        while len(self._held) > max(self._needs - 1, 0) and self._is_free() and (used := self._take(self._held)):
            del self._held[:used]
            if self._owed:
                self._pay()
        if self._is_free():
            if self._ended or self._server.draining:
                self.transport.close()
            elif self._held and not self._begun:
                self._begun = self._server.time()
        self._pace()
        self._note_held()

    def _is_free(self) -> bool:
        return not (self._state or self._stuck or self._deaf)

    def _pace(self) -> None:
        """Read, or read no more for now."""
        pauses = self._full or (len(self._held) > MOST_AHEAD_HELD and not self._is_free())
        if pauses is not self._paused and not self.transport.is_closing():
            self._paused = pauses
            if pauses:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def fill(self, *, full: bool) -> None:
        """Whether aiohttp has as much of a body as it wants for now."""
        self._full = full and not self._deaf
        self._pace()

    def _note_held(self) -> None:
        kept = len(self._held) if self._needs or not self._is_free() else 0
        if kept != self._kept:
            self._kept = kept
            self._server.held.hold(self, self.transport.get_write_buffer_size() if self._stuck else 0, kept)

    def _take(self, held: bytes | bytearray) -> int:
        """Begin one request. Returns how many bytes of it, without its body if that goes to aiohttp, or of empty lines
        before it, are done with. 0 if its head has not come whole, or is refused.
        """
        if held.startswith(b"\r\n"):
            return cast("re.Match[bytes]", _EMPTY_LINES.match(held)).end()
        end = held.find(b"\r\n\r\n", max(self._checked - 3, 0))
        try:
            if end < 0:
                check_part(held, self._checked)
                self._checked = len(held)
                return 0
            line, head = self._server.heads.read(bytes(held[:end]))
        except RefusedError as error:
            self._refuse(error.status, error.detail)
            return 0
        if self._server.draining and not self._needs:
            return 0
        self._checked = 0
        size = end + 4
        whole = size + head.length
        plain = self._server.plain
        is_patient = self._needs >= 0
        self._stop_waiting()
        if plain is not None and head.plain is not None and whole <= LARGEST and not self.is_crowded:
            if whole > len(held) and is_patient and line.method == b"POST":
                self._wait_for(whole)
                return 0
            request = None
            if whole <= len(held):
                request = plain.recognise(*line, head.plain, bytes(held[size:whole]))
            if request is not None and self._answers(request):
                if request.is_usual:
                    self._server.remember(bytes(held[:whole]), request)
                return whole
        self._lend(bytes(held[:size]), head.length, is_last=head.is_last or self.is_crowded)
        return size

    def _wait_for(self, whole: int) -> None:
        """Let the rest of a plain request come. Its head was in time: its body has `PATIENCE`."""
        self._needs, self._begun = whole, self._server.time()
        self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._wait_no_more)

    def _wait_no_more(self) -> None:
        self._needs = -1
        self.go_on()

    def _stop_waiting(self) -> None:
        self._needs = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _answers(self, request: Any) -> bool:
        plain = self._server.plain
        assert plain is not None  # noqa: S101 (else nothing is recognised)
        answer = plain.begin(request, self)
        if answer is False:
            return False
        self._begun = 0.0
        if answer is True:
            self._state = PLAIN
        else:
            self._since = self._server.time()
            self.transport.write(answer)
        return True

    def answer(self, answer: bytes | None) -> None:
        """Answer the plain request that waits. None: it has no answer, as we stop."""
        self._state = FREE
        self._since = self._server.time()
        if self.transport.is_closing():
            return
        if answer is None:
            self.transport.close()
            return
        self.transport.write(answer)
        if self._held or self._paused or self._ended or self._server.draining:
            self.go_on()

    def _lend(self, head: bytes, owed: int, *, is_last: bool) -> None:
        """Pass aiohttp a head. `_pay` passes it the body."""
        if self._inner is None:
            self._inner = self._server.aiohttp()
            self._inner.connection_made(cast("asyncio.Transport", LentTransport(self)))
        self._state, self._returned, self._owed, self._request = LENT, False, owed, None
        self._chunks = Chunks() if owed == CHUNKED else None
        self._since, self._begun = self._server.time(), 0.0
        self._inner.data_received(lent(head, is_last=is_last))

    def _pay(self) -> None:
        """Pass aiohttp what has come of the body of its request."""
        if self._chunks is None:
            part = bytes(self._held[: self._owed])
            del self._held[: self._owed]
            self._owed -= len(part)
        else:
            try:
                part = self._chunks.take(self._held)
            except RefusedError:
                self._spoil()
                return
            if self._chunks.done:
                self._owed = 0
        if part:
            cast("asyncio.Protocol", self._inner).data_received(part)
        if not self._owed and self._returned:
            self._state = FREE

    def _spoil(self) -> None:
        """The body is not HTTP. Its handler gets an error, since it may have begun to answer."""
        self._spoilt = self._deaf = True
        self._owed = 0
        self._held.clear()
        if self._returned:
            self._close()
        elif self._request is not None:
            self._request.content.set_exception(web.RequestPayloadError("the body is not valid HTTP"))
            self._request.content.feed_eof()

    def begun(self, request: web.BaseRequest) -> None:
        """The lent request has a handler now."""
        self._request = request
        if self._spoilt:
            self._spoil()

    def returned(self, *, stays: bool) -> None:
        """The answer to the lent request is written. Unless it `stays`, aiohttp closes the connection."""
        self._returned = True
        self._since = self._server.time()
        self.is_stream = False
        if not stays:
            self._deaf = True
            if not self._owed:
                self._held.clear()
        elif self._spoilt:
            self._close()
        elif self._held and not self._owed:  # others get a turn first: from Python 3.12 on, aiohttp gives them none
            asyncio.get_running_loop().call_soon(self._take_back)
        elif not self._owed:
            self._take_back()

    def _take_back(self) -> None:
        self._state = FREE
        self.go_on()

    def _refuse(self, status: int, detail: str) -> None:
        self._held.clear()
        self._begun = 0.0
        self._deaf = True
        self.transport.write(self._server.refuse(status, detail, self))
        self._close()

    def _close(self) -> None:
        """Close it when the client has had time to read what is written."""
        self._deaf, self._state = True, FREE
        self._since = self._server.time()
        self.fill(full=False)
        if self.transport.is_closing() or self._ended or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()

    def eof_received(self) -> bool:
        self._ended = True
        self._leaves()
        return not self._deaf and ((self._state > FREE and not self._owed) or self._stuck)

    def pause_writing(self) -> None:
        self._stuck = True
        self._unread = self._server.time()
        self._server.held.hold(self, self.transport.get_write_buffer_size(), self._kept)
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._stuck, self._unread = False, 0.0
        self._server.held.hold(self, 0, self._kept)
        if self._inner is not None:
            self._inner.resume_writing()
        self.go_on()

    # What the server asks.

    def look(self, now: float, head_timeout: float, idle: float, unread: float) -> str:
        """Why the connection was closed, as its client is too slow; or empty."""
        if self.transport.is_closing() and not self._unread:
            self._unread = now
        if self._unread:
            if now - self._unread > unread:
                self.drop()
                return "unread"
        elif self._deaf:
            if not self._state and now - self._since > LINGER:
                self.drop()
        elif self._begun:
            if now - self._begun > head_timeout:
                self._give_up(head_timeout)
                return "slow"
        elif not self._state and now - self._since > idle:
            self.transport.close()
        return ""

    def _give_up(self, head_timeout: float) -> None:
        """A client that has not begun a request gets no answer: it would take that for the one to its next request."""
        if self._held.strip(b"\r\n"):
            self._held.clear()
            self.transport.write(
                answers.problem(
                    408, f"the headers did not arrive within {head_timeout:g} seconds: send the request again"
                )
            )
            self._close()
        else:
            self.transport.close()

    def claim(self) -> tuple[int, float] | None:
        """How dispensable it is: the least is closed first. None while the client waits for an answer."""
        if self._unread or self._deaf or self._owed or (self._begun and not self._state):
            return 0, self._since
        if not self._state:
            return 1, self._since
        return (2, self._since) if self.is_stream else None

    def is_answering(self) -> bool:
        return self._state == PLAIN

    def drain(self) -> None:
        """Close the connection as soon as its request is answered."""
        if self._needs:
            self._wait_no_more()
        elif self._is_free():
            self.transport.close()

    def drop(self) -> None:
        """Close the connection at once, and forget what is held for it."""
        self.transport.abort()

    # What handlers ask.

    def has_gone(self, request: web.BaseRequest) -> bool:
        """Whether the client has hung up while it waits for an answer. One that has closed its connection looks like
        one that sends no more but still reads, until something is written: so an interim answer is, once.
        """
        if self.transport.is_closing():
            return True
        if not self._ended or request.version < HttpVersion11:
            return False
        if not self._probed:
            self._probed = True
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drop()
            return True
        return False

    def tell(self, leaves: Callable[[], None]) -> None:
        """Call `leaves` when the client has closed its sending side, and when the connection is lost."""
        self._leaves = leaves
        if self._ended or self.transport.is_closing():
            leaves()


class LentTransport:
    """What aiohttp takes for its transport: that of the connection, but for reading, which is the front's to pace."""

    __slots__ = ("_front", "_transport", "is_closing", "write", "writelines")

    def __init__(self, front: Front) -> None:
        self._front = front
        self._transport = front.transport
        self.is_closing = front.transport.is_closing
        self.write = front.transport.write
        self.writelines = front.transport.writelines

    def pause_reading(self) -> None:
        self._front.fill(full=True)

    def resume_reading(self) -> None:
        self._front.fill(full=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def nobody() -> None:
    """Called where nobody wants to know."""


def front_of(request: web.BaseRequest) -> Front | None:
    """The connection of a request that is not answered yet; None if it is lost."""
    found = None if request.transport is None else request.transport.get_protocol()
    return found if isinstance(found, Front) else None


def has_gone(request: web.BaseRequest) -> bool:
    """Whether the client of a request that is not answered yet has hung up."""
    front = front_of(request)
    return front is None or front.has_gone(request)


@contextmanager
def told_when_it_leaves(request: web.BaseRequest, tell: Callable[[], None]) -> Iterator[None]:
    """In this context, `tell` is called when the client seems to hang up. Only what is written to it then can tell."""
    front = front_of(request)
    if front is None:
        tell()
        yield
        return
    front.tell(tell)
    try:
        yield
    finally:
        front.tell(nobody)


def lending(handler: Handler) -> Handler:
    """The handler around all others: it writes the answer to its end, so that the front may have the connection back.
    Then aiohttp finds nothing left to do. An answer must bear being prepared and ended twice, as all of aiohttp's do
    but `FileResponse`.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        front = front_of(request)
        if front is None:
            return web.Response()  # nobody gets it
        front.begun(request)
        response = await handler(request)
        with suppress(ConnectionError):  # the client has gone, which aiohttp notices, too
            await response.prepare(request)
            await response.write_eof()
            front.returned(stays=bool(response.keep_alive))
        return response

    return answer
