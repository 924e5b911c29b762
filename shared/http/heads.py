"""The grammar of a request's head and of a chunked body. Pure.

It is stricter than RFC 9112: what passes here, aiohttp and every proxy read in the same way. So nobody can hide a
request in another one, and aiohttp never has to refuse a request itself. These are refused, although the RFC allows
them or leaves them to the server:

- CONNECT, methods that aiohttp does not know, and targets in other than origin or absolute form or `*`;
- a first line with anything but single spaces, bytes beyond ASCII in it, or an IPv6 address as host in it;
- Transfer-Encoding other than `chunked`, in HTTP/1.0, or together with Content-Length; several Content-Length or Host;
- line feeds or returns alone, header lines that are folded or have a space before the colon.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

LONGEST_LINE: Final = 16_384
"""Most bytes in the first line of a request. Names of 400 bytes may be percent-encoded, and a query may hold many."""
LONGEST_HEADER: Final = 8_192
"""Most bytes in the name and value of one header."""
LONGEST_HEAD: Final = 32_768
"""Most bytes of the first line and all headers together."""
FEWER_OTHERS: Final = 4
"""A head with bytes beyond ASCII may have 1/4 of that: as text, it may take four bytes for each character."""
MOST_HEADERS: Final = 126
CHUNKED: Final = -1
"""The length of a body that comes in chunks."""
_SMALL: Final = 1_024
"""Bytes of headers. They are read once if a client sends them again and again, as most clients do."""
_MOST_FRAMING: Final = 4_096
"""Bytes for the sizes and trailers of a chunked body, besides half as many as the body has."""

_PORT: Final = rb"[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_LINE: Final = re.compile(
    rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|COPY|LOCK|MKCOL|MOVE|PROPFIND|PROPPATCH|SEARCH|UNLOCK|BIND|REBIND"
    rb"|UNBIND|ACL|REPORT|MKACTIVITY|CHECKOUT|MERGE|M-SEARCH|NOTIFY|SUBSCRIBE|UNSUBSCRIBE|PURGE|MKCALENDAR|LINK|UNLINK"
    rb"|QUERY)"
    rb" (/[!-~]*|(?<=OPTIONS )\*|[Hh][Tt][Tt][Pp][Ss]?://[\w.-]+(?::(?:" + _PORT + rb"))?(?:/[!-~]*)?) HTTP/1\.([01])"
)
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]++):[\t ]*+([\t -~\x80-\xff]*+)")
_NEVER: Final = re.compile(rb"\0|(?<!\r)\n|\r[^\n]")
"""What can't be in a head, nor in the lines of a chunked body."""
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t -~]*)?\r\n")
_ONCE: Final = frozenset(
    {
        *(b"content-length", b"content-location", b"content-range", b"content-type", b"etag", b"host"),
        *(b"max-forwards", b"server", b"transfer-encoding", b"user-agent"),
    }
)
"""Headers that may appear once: aiohttp refuses most of them if they appear twice."""
_CONNECTIONS: Final = (b"connection", b"proxy-connection")
"""Headers that end a connection. aiohttp reads both alike."""
_UNUSUAL: Final = frozenset(
    {b"access-control-request-method", b"content-encoding", b"expect", b"origin", b"te", b"trailer"}
)


class RefusedError(Exception):
    """It is not HTTP, it is too long, or its readers may not agree on what it means."""

    def __init__(self, status: int = 400, detail: str = "the request is not valid HTTP") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Head(NamedTuple):
    """What the headers of a request say of its body and its connection."""

    length: int
    """Bytes of the body, or `CHUNKED`."""
    has_host: bool
    is_last: bool
    """Whether the connection must end with the request, as the client wants or because it asks for another protocol."""
    plain: Any
    """What a server needs that answers the request itself. None if it leaves the request to aiohttp."""


class Line(NamedTuple):
    method: bytes
    target: bytes
    minor: bytes


PlainHead = Callable[[Mapping[bytes, bytes]], Any]
"""Makes `Head.plain` of headers that stand once each, ask for nothing unusual and keep the connection."""


class Heads:
    """Reads whole heads."""

    def __init__(self, plain: PlainHead | None = None) -> None:
        self._plain = plain
        self._known = lru_cache(maxsize=512)(self._headers)

    def read(self, head: bytes) -> tuple[Line, Head]:
        """`head` is without the empty line that ends it. Raises `RefusedError`."""
        if is_too_long(head):
            raise too_long(head)
        line, _, block = head.partition(b"\r\n")
        if len(line) > LONGEST_LINE:
            raise _url_too_long()
        found = _LINE.fullmatch(line)
        if found is None:
            raise RefusedError
        known = self._known(block) if len(block) <= _SMALL else self._headers(block)
        first = Line(found[1], found[2], found[3])
        if not known.has_host and first.minor == b"1":
            raise RefusedError
        if first.minor == b"0" and known.length == CHUNKED:
            raise RefusedError
        return first, known

    def _headers(self, block: bytes) -> Head:
        headers: dict[bytes, bytes] = {}
        connection: list[bytes] = []
        is_usual = True
        lines = block.split(b"\r\n") if block else []
        if len(lines) > MOST_HEADERS:
            raise RefusedError
        for line in lines:
            if len(line) > LONGEST_HEADER:
                raise RefusedError(431, f"a header is longer than {LONGEST_HEADER} bytes")
            field = _HEADER.fullmatch(line)
            if field is None:
                raise RefusedError
            name, value = field[1].lower(), field[2].rstrip(b"\t ")
            if name in _CONNECTIONS:
                connection += [word.strip(b"\t ").lower() for word in value.split(b",")]
            elif name in headers:
                if name in _ONCE:
                    raise RefusedError
                is_usual = False
            headers[name] = value
        length, coding = headers.get(b"content-length", b"0"), headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or b"content-length" in headers):
            raise RefusedError
        if not length.isdigit() or len(length) > 15 or b"sec-websocket-key1" in headers:  # noqa: PLR2004 (a petabyte)
            raise RefusedError
        is_last = b"close" in connection or b"upgrade" in headers
        is_usual &= coding is None and not is_last and _UNUSUAL.isdisjoint(headers)
        is_usual &= connection in ([], [b"keep-alive"]) and b"proxy-connection" not in headers
        plain = self._plain(headers) if is_usual and self._plain is not None else None
        return Head(CHUNKED if coding else int(length), b"host" in headers, is_last, plain)


def check_part(head: bytes | bytearray, since: int) -> None:
    """Raise `RefusedError` if this can't become a head, whatever comes behind it. It was checked up to `since`."""
    if is_too_long(head) or (len(head) > LONGEST_LINE and head.find(b"\r\n", 0, LONGEST_LINE + 2) < 0):
        raise too_long(head)
    if not (head[:1].isupper() or head == b"\r") or _NEVER.search(head, max(since - 1, 0)):
        raise RefusedError


def is_too_long(head: bytes | bytearray) -> bool:
    return len(head) > LONGEST_HEAD or (len(head) > LONGEST_HEAD // FEWER_OTHERS and not head.isascii())


def too_long(head: bytes | bytearray) -> RefusedError:
    if head.find(b"\r\n", 0, LONGEST_LINE + 2) < 0:
        return _url_too_long()
    longest = LONGEST_HEAD if head.isascii() else f"{LONGEST_HEAD // FEWER_OTHERS} (they are not all ASCII)"
    return RefusedError(431, f"the headers are longer than {longest} bytes")


def _url_too_long() -> RefusedError:
    return RefusedError(414, f"the URL is longer than {LONGEST_LINE} bytes")


_CONNECTION: Final = re.compile(rb"\r\n(?:Proxy-)?Connection:[^\r]*", re.IGNORECASE)
_SPACE: Final = re.compile(rb"(?<![\t ])[\t ]++(?=\r\n)")


def lent(head: bytes, *, is_last: bool) -> bytes:
    """What aiohttp gets of a head. Before 3.14, it took spaces at the end of a value for a part of the value. The last
    request of a connection asks to close it and for nothing else: HTTP/1.0's `keep-alive` would win over an added
    `close`, and an upgrade would take the bytes behind the request.
    """
    if b" \r\n" in head or b"\t\r\n" in head:
        head = _SPACE.sub(b"", head)
    if not is_last:
        return head
    line, _, block = _CONNECTION.sub(b"", head).partition(b"\r\n")
    return b"%b\r\nConnection: close\r\n%b" % (line, block)


class Chunks:
    """Finds where a chunked body ends, and leaves out its extensions and trailers: aiohttp takes the last trailer for a
    header of the next request. Refuses a body in tiny chunks, since each costs as much as a large one.
    """

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current chunk that have not come."""
        self._size = self._framing = 0
        self._before = b""
        """What ends the chunk before the next one."""
        self._in_trailer = self.done = False

    def take(self, held: bytearray) -> bytes:
        """Remove what is of the body from `held`. Returns what aiohttp is to get of it; raises `RefusedError`."""
        passed: list[bytes] = []
        while held and not self.done:
            if self._left:
                passed.append(bytes(held[: self._left]))
                del held[: self._left]
                self._left -= len(passed[-1])
                self._size += len(passed[-1])
                continue
            end = held.find(b"\r\n", len(self._before)) + 2
            if self._framing + (end if end > 1 else len(held)) > _MOST_FRAMING + self._size // 2:
                raise RefusedError
            if end == 1:  # the line has not come whole
                if not held.startswith(self._before[: len(held)]) or _NEVER.search(held):
                    raise RefusedError
                break
            self._framing += end
            line = bytes(held[:end])
            del held[:end]
            passed.append(self._line(line))
        return b"".join(passed)

    def _line(self, line: bytes) -> bytes:
        if self._in_trailer:
            self.done = line == b"\r\n"
            if not self.done and not _HEADER.fullmatch(line[:-2]):
                raise RefusedError
            return b"0\r\n\r\n" if self.done else b""
        before, found = self._before, _CHUNK.fullmatch(line, len(self._before))
        if found is None or not line.startswith(before):
            raise RefusedError
        self._left = int(found[1], 16)
        self._in_trailer = not self._left
        self._before = b"\r\n" if self._left else b""
        return b"%b%b\r\n" % (before, found[1]) if self._left else before
