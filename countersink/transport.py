"""Makes one attempt of a request from any thread, over kept connections, and says how long to wait before the
next.
"""

import base64
import contextlib
import io
import json
import os
import random
import re
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate, parsedate_to_datetime
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from countersink.answers import RejectedError, RequestError, UnavailableError
from countersink.interrupts import Moment

# Reads the URL of a service, and says what is wrong with it if no good answer comes.


UNIX: Final = "unix:"
"""How the URL of a Unix socket begins; its path follows."""
_WITHOUT_SCHEME: Final = re.compile(r"[\w.-]+(:\d{1,5})?/?", re.ASCII)
_TLS_ALERT: Final = "\x15\x03"
"""How the answer to a request without TLS begins where TLS is spoken."""
_WANTS_TLS: Final = (b"HTTPS port", b"HTTPS server", b"SSL-enabled")
"""What nginx, Go and Apache say there."""


def parts_of(url: str) -> tuple[Any, str]:
    """The parts of the URL, and the path of its Unix socket if it names one. Raises `ValueError` if it is wrong."""
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return urlsplit("http://localhost"), url.removeprefix(UNIX)
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
        if good and parts.port != 0 and url.isprintable() and " " not in url:
            parts.hostname.encode("idna") if parts.hostname else b""
            return parts, ""
    except ValueError:
        pass
    form = f"http://{url}" if _WITHOUT_SCHEME.fullmatch(url) else "http://HOST:PORT"
    raise ValueError(f"{url!r} is not the URL of a service: write it as {form}")


def flaw_of_scheme(shown: str, error: Exception) -> str | None:
    """Why no attempt can succeed: only one of the two sides speaks TLS, or the certificate is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {shown} is not trusted: {error.verify_message}. Set SSL_CERT_FILE to a file with the"
            " authority that signed it"
        )
    if isinstance(error, ssl.SSLError) and error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
        return f"{shown} does not speak TLS: write {shown.replace('https://', 'http://', 1)}, or the port that does"
    if isinstance(error, BadStatusLine) and str(error).startswith(_TLS_ALERT):
        return wants_tls(shown)
    return None


def wants_tls(shown: str) -> str:
    return f"{shown} speaks TLS: write {shown.replace('http://', 'https://', 1)}"


def reason_of(error: Exception, seconds: float) -> str:
    """Why there is no answer, and what to look at."""
    if isinstance(error, TimeoutError):
        return f"the answer took longer than {seconds:g} s"
    if isinstance(error, RemoteDisconnected):
        return (
            "the server closed the connection without an answer. Is the URL right, and should it begin with https://?"
        )
    if isinstance(error, BadStatusLine):
        return f"what answers does not speak HTTP: {str(error).strip()[:60]!r}. Is the port right?"
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        said = os.strerror(error.errno)
    else:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{said}. Is it running, and is the URL right?"


_random: Final = random.Random()  # noqa: S311 (no secret; a generator of its own, so that programs may seed theirs)
AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
TOO_MANY: Final = 429
"""The status of a request that was surely not accepted, and may be later."""
UNAUTHORIZED: Final = 401
"""The same, if the client asks for the key again before each attempt."""
ONE_TRY: Final = 10.0
"""Seconds after which an attempt is given up and repeated."""
SHORTEST_TRY: Final = 1.0
"""Seconds of one attempt at least, however short the caller's patience."""
LONGEST_CONNECT: Final = 5.0
LONGEST_RETRY_AFTER: Final = 3_600.0
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
MOST_IDLE: Final = 8
"""Connections that are kept open for later requests."""
LARGEST: Final = 64 << 20
"""Bytes of an answer. A chunk of an export is much smaller."""
_PIECE: Final = 65_536
_NO_PATH: Final = "there is no such path"
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""The clock of Linux, or of macOS, that counts suspended time; none on Windows, where `time.monotonic` counts it."""


def now() -> float:
    """Seconds of a clock that nobody sets, and that continues while the machine is suspended, if there is one."""
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()


@dataclass(frozen=True, slots=True)
class Request:
    """It is sent again byte for byte, so that the service knows a retry."""

    method: str
    path: str
    """The path below the client's URL, with the query."""
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer 2xx."""

    body: bytes
    headers: Mapping[str, str]
    """The names are in lower case."""

    @property
    def object(self) -> dict[str, Any]:
        """The body as a JSON object. Raises `ValueError` if it is none."""
        try:
            found = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        if not isinstance(found, dict):
            raise ValueError("no JSON object")  # noqa: TRY004 (as for what is no JSON)
        return found


class Retries:
    """How long to wait until a request is sent again: longer each time, and as long as the service says."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE

    def delay(self, failure: RequestError) -> float:
        """Seconds to wait after this failure."""
        jitter = _random.uniform(0.5, 1.0)
        delay = failure.retry_after + self._pause * jitter
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return delay


class Transport:
    """Sends requests. Any of them may arrive twice, so every request that counts needs an id or a key."""

    again = AGAIN
    """Statuses after which the same request may succeed."""
    name = "Countersink"
    """Who answers."""
    can_be_asked = True
    """Whether there are answers to read, and not only increments to take."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        changing: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`changing` returns more headers. It is asked before each attempt."""
        parts, self._socket = parts_of(url)
        self._https = parts.scheme == "https"
        self._tls = tls
        self._host: str = parts.hostname or ""
        self._port = parts.port
        self._path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self.shown: str = url if self._socket else shown
        """The URL without a password."""
        self._headers = {"User-Agent": "countersink-python", "Content-Type": "application/json"}
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        self._headers |= headers
        self._changing = changing
        self.forget()

    def forget(self) -> None:
        """Begin without connections. After a fork the child has to: it would share those of its parent.

        A thread of the parent may have held a lock of a busy one, as that of its buffer. So the child touches no more
        of it than its descriptor: from now on it leads nowhere, so reading from it or closing it does no harm.
        """
        for connection in getattr(self, "_idle", ()):
            connection.close()
        for connection in getattr(self, "_busy", ()):
            with contextlib.suppress(OSError, AttributeError), Path(os.devnull).open("rb") as nowhere:
                os.dup2(nowhere.fileno(), connection.sock.fileno(), inheritable=False)
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self.closed = Moment()

    def close(self) -> None:
        self.closed.set()
        while self._idle:
            self._idle.pop().close()
        for connection in list(self._busy):
            with contextlib.suppress(OSError, AttributeError):  # ends what another thread waits for
                connection.sock.shutdown(socket.SHUT_RDWR)

    def attempt(self, request: Request, seconds: float) -> Answer:
        """Send it once. Raises `UnavailableError` if it may succeed later, and `RejectedError` if not. Both say whether
        it may have been accepted all the same.

        On an idle connection, which the service may be closing just now, a failure costs no attempt: it is sent again
        on a new one. But the first one may have arrived.
        """
        request = self._addressed(request)
        sent = unanswered = False
        try:
            idle = self._idle_connection()
            connection = idle or self._connected(seconds)
            sent = True
            try:
                response, said = self._exchange(connection, request, seconds)
            except Exception as error:
                if idle is None or isinstance(error, TimeoutError):
                    raise
                unanswered = True
                response, said = self._exchange(self._connected(seconds), request, seconds)
        except Exception as error:  # http.client raises many kinds, such as AttributeError if another thread closes
            raise self._failure(error, seconds, maybe_accepted=sent) from error
        try:
            self._check(response, said)
        except RequestError as error:
            error.maybe_accepted |= unanswered
            raise
        return Answer(said, _headers_of(response))

    @contextlib.contextmanager
    def lines(self, request: Request, silence: float) -> Iterator[Iterator[bytes]]:
        """The lines of an answer that need not end, on a connection of its own. Raises what `attempt` raises, and
        `UnavailableError` if nothing comes for `silence` seconds.
        """
        request = self._addressed(request)
        try:
            connection = self._connected(silence)
            try:
                response = self._begin(connection, request, silence)
                if response.status != 200:  # noqa: PLR2004 (OK)
                    self._check(response, _body(response))
                response.incoming.until = float("inf")
                yield iter(response.readline, b"")
            finally:
                self._busy.discard(connection)
                connection.close()
        except (HTTPException, OSError, ValueError, AttributeError) as error:
            raise self._failure(error, silence) from error

    def _addressed(self, request: Request) -> Request:
        """The request with all of its headers."""
        try:
            changing = self._changing()
        except Exception as error:
            failed = UnavailableError(f"there is no key for {self.shown}: {str(error) or type(error).__name__}")
            failed.maybe_accepted = False
            raise failed from error
        return replace(request, headers={**self._headers, **changing, **request.headers})

    def _failure(self, error: Exception, seconds: float, *, maybe_accepted: bool = False) -> RequestError:
        flaw = flaw_of_scheme(self.shown, error)
        why = "the client is closed" if self.closed.is_set() else reason_of(error, seconds)
        failed = RejectedError(flaw) if flaw else UnavailableError(f"no answer from {self.shown}: {why}")
        failed.maybe_accepted = maybe_accepted
        return failed

    def _check(self, response: HTTPResponse, said: bytes) -> None:
        status = response.status
        if 200 <= status < 300:  # noqa: PLR2004 (success)
            return
        answer: dict[str, Any] = {}
        with contextlib.suppress(ValueError):  # what answers may not be Countersink
            answer = Answer(said, {}).object
        detail = self.detail(answer)
        if detail is None and not self._https and any(words in said for words in _WANTS_TLS):
            raise RejectedError(wants_tls(self.shown), status=status)
        if detail is None:
            detail = f"{self.shown} answered {status} {response.reason}, not as {self.name} does: is the URL right?"
        if self._path and detail.startswith(_NO_PATH):
            detail = f"{_NO_PATH} at {self.shown}: leave {self._path} out of the URL, unless a proxy removes it"
        if status in self.again:
            retry_after = _retry_after(_headers_of(response))
            failed = UnavailableError(detail, status=status, retry_after=retry_after)
            failed.maybe_accepted = status not in {TOO_MANY, UNAUTHORIZED}
            failed.counters = _texts(answer.get("counters"))
            raise failed
        refused = RejectedError(detail, status=status, field=answer.get("field"))
        refused.maybe_accepted = status >= 500  # noqa: PLR2004 (the fault is on the other side)
        refused.counters = _texts(answer.get("counters"))
        raise refused

    def stranger(self) -> str:
        """What is wrong if an answer can't be read: another program answers, such as a captive portal."""
        return f"{self.shown} does not answer as {self.name} does: is the URL right?"

    def detail(self, answer: Mapping[str, Any]) -> str | None:
        """Why a request failed, if the service says so."""
        return str(answer["detail"]) if "detail" in answer else None

    def _idle_connection(self) -> HTTPConnection | None:
        """One that is kept, and open: what the service closed meanwhile must not leave a doubt whether it was used."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if connection.sock is not None and not _readable(connection.sock):
                return connection
            connection.close()
        return None

    def _connected(self, seconds: float) -> HTTPConnection:
        """A new connection, on which nothing is sent yet. It is busy from now on."""
        connection = self._connection()
        self._busy.add(connection)
        try:
            if self.closed.is_set():
                raise ConnectionError("the client is closed")
            connection.timeout = min(seconds, LONGEST_CONNECT)
            connection.connect()
        except BaseException:
            self._busy.discard(connection)
            connection.close()
            raise
        return connection

    def _exchange(self, connection: HTTPConnection, request: Request, seconds: float) -> "tuple[_Response, bytes]":
        """Use the connection, and keep it if it can be used again."""
        try:
            response = self._begin(connection, request, seconds)
            said = _body(response)
            response.close()  # the body is read; http.client would wait for more of it
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if not response.is_reusable or self.closed.is_set() or len(self._idle) >= MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        return response, said

    def _begin(self, connection: HTTPConnection, request: Request, seconds: float) -> "_Response":
        """Send the request, and read the head of its answer, all in this many seconds."""
        until = time.monotonic() + seconds
        self._busy.add(connection)
        if self.closed.is_set() or connection.sock is None:
            raise ConnectionError("the client is closed")
        connection.sock.settimeout(seconds)
        encoded = {name: value.encode() for name, value in request.headers.items()}
        connection.request(request.method, self._path + request.path, request.body, encoded)
        response = _Response(connection.sock, request.method, until, seconds)
        connection.response_class = lambda *_, **__: response  # type: ignore[assignment] # it makes one
        connection.getresponse()
        return response

    def _connection(self) -> HTTPConnection:
        if self._socket:
            return _UnixConnection(self._socket)
        if not self._https:
            return HTTPConnection(self._host, self._port)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return HTTPSConnection(self._host, self._port, context=self._tls)


class _Incoming(io.RawIOBase):
    """What a socket sends: all of it until an instant, and each piece after at most this many seconds of silence."""

    def __init__(self, sock: socket.socket, until: float, silence: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self.until = until
        self._silence = silence
        self.at_end = False
        """Whether no more is to be read."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.at_end:
            return None
        rest = self.until - time.monotonic()
        if rest <= 0:
            raise TimeoutError
        self._sock.settimeout(min(rest, self._silence))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Buffer(io.BufferedReader):
    raw: _Incoming
    has_more = False

    def close(self) -> None:
        if not self.closed:
            self.raw.at_end = True
            with contextlib.suppress(OSError, ValueError):
                self.has_more |= bool(self.peek(1))
        super().close()


class _Response(HTTPResponse):
    """The final answer, with a deadline."""

    def __init__(self, sock: socket.socket, method: str, until: float, silence: float) -> None:
        self.incoming = _Incoming(sock, until, silence)
        self._buffer = _Buffer(self.incoming)
        super().__init__(self, method=method)  # type: ignore[arg-type] # it calls only `makefile`

    def makefile(self, _: str) -> io.BufferedReader:
        return self._buffer

    def begin(self) -> None:
        """Read the head. Heads of interim answers (1xx), which may come before, are left out."""
        super().begin()
        while 100 <= self.status < 200:  # noqa: PLR2004 (interim)
            if self.status == 101:  # noqa: PLR2004 (what follows is another protocol)
                raise HTTPException("it switches to another protocol")
            self.headers = self.msg = None  # type: ignore[assignment] # `begin` reads them if there are none
            super().begin()

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can be used again after this answer, which has been read."""
        return not self.will_close and not self._buffer.has_more


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._at = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._at)


def _readable(sock: socket.socket) -> bool:
    """Whether something is there to be read. On an idle connection, that is its end."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _body(response: HTTPResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise HTTPException(f"the answer has more than {LARGEST} bytes")
    if response.length:  # http.client does not say that the body ended early
        raise HTTPException("the answer is not complete")
    return b"".join(pieces)


def _headers_of(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _texts(found: Any) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds. A date is compared with that of the answer, if it has one, as clocks differ."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_RETRY_AFTER)
    try:
        there = parsedate_to_datetime(headers.get("date", formatdate(usegmt=True)))
        seconds = (parsedate_to_datetime(text) - there).total_seconds()
    except (TypeError, ValueError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
