"""Generates requests: each way to count, reads, and heads that are unusual or wrong."""

from random import Random
from typing import NamedTuple

from tests.http.fuzz import bodies, heads
from tests.http.fuzz.side import KEYS, MAX_BODY, text_of


class Request(NamedTuple):
    """The bytes of a request."""

    data: bytes
    framed: bool
    """Whether everybody agrees where it ends."""


def request(chance: Random, *, undurable: bool) -> Request:
    """Without `undurable` none asks for `ack=none`."""
    kind = chance.random()
    if kind < 0.5:
        return _usual(chance)
    if kind < 0.66:
        return _increment(chance, undurable=undurable)
    if kind < 0.76:
        if chance.random() < 0.4:
            return _usual(chance, b"/v1/increments", bodies.plain_batch(chance))
        return _of(chance, b"POST", b"/v1/increments" + _query(chance, 0.2), bodies.batch(chance))
    if kind < 0.85:
        target = b"/v1/counters/" + _name(chance) + chance.choice((b"", b"?max_age=0"))
        return _of(chance, chance.choice((b"GET", b"GET", b"HEAD")), target, None)
    if kind < 0.91:
        paths = (b"/version", b"/healthz", b"/v1/receipts/r", b"/no", *heads.LISTS)
        return _of(chance, b"GET", chance.choice(paths), chance.choice((None, None, b"{}")))
    if kind < 0.945:
        method = chance.choice((b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"post", b"X"))
        return _of(chance, method, b"/v1/counters/" + _name(chance), b'{"value": 5}' if method == b"PUT" else None)
    return _wrong(chance, undurable=undurable)


def _usual(chance: Random, target: bytes | None = None, body: bytes | None = None) -> Request:
    """One increment, or a batch, of the form that the fast path takes."""
    target = b"/v1/counters/" + _name(chance) if target is None else target
    body = bodies.single(chance) if body is None else body
    lines = [b"Host: h", b"Content-Length: %d" % len(body)]
    if chance.random() < 0.8:
        lines.append(b"Authorization: Bearer " + text_of(_key(chance)).encode())
    if chance.random() < 0.4:
        lines.append(b"Idempotency-Key: " + chance.choice(heads.IDS[:3]))
    while chance.random() < 0.2:
        lines.append(chance.choice(heads.OTHERS[: heads.PLAIN_OTHERS]))
    if chance.random() < 0.08:
        lines.append(_again(chance, lines))
    chance.shuffle(lines)
    line = b"POST %b HTTP/1.1\r\n" % target
    return Request(line + b"\r\n".join(lines) + b"\r\n\r\n" + body, framed=len(body) <= MAX_BODY)


def _increment(chance: Random, *, undurable: bool) -> Request:
    body = bodies.single(chance) if chance.random() < 0.75 else None
    if undurable and chance.random() < 0.3:
        # It is published a moment later, when no other request may read its counter or use its id.
        return _of(chance, b"POST", b"/v1/counters/undurable?ack=none", body)._replace(framed=False)
    return _of(chance, b"POST", b"/v1/counters/" + _name(chance) + _query(chance, 0.12), body)


def _name(chance: Random) -> bytes:
    return chance.choice(heads.ODD_NAMES if chance.random() < 0.08 else heads.NAMES)


def _query(chance: Random, share: float) -> bytes:
    return b"?" + chance.choice(heads.QUERIES) if chance.random() < share else b""


def _of(chance: Random, method: bytes, target: bytes, body: bytes | None) -> Request:
    headers = [b"Host: " + chance.choice((b"h", b"h", b"h", b"localhost:80"))]
    if chance.random() < 0.6:
        headers += [b"Authorization: " + _authorization(chance)]
    if chance.random() < 0.25:
        headers += [b"Idempotency-Key: " + chance.choice(heads.IDS[:3] if chance.random() < 0.7 else heads.IDS)]
    while chance.random() < 0.3:
        headers.append(chance.choice(heads.OTHERS[: heads.PLAIN_OTHERS] if chance.random() < 0.7 else heads.OTHERS))
    if chance.random() < 0.05:
        headers.append(_again(chance, headers))
    framed = not any(header.startswith((b"Transfer-Encoding", b"Expect: x")) for header in headers)
    if body is not None and len(body) > MAX_BODY:
        framed = False
    if body is not None and chance.random() < 0.15:
        headers.append(b"Transfer-Encoding: chunked")
        body = _chunks(chance, body)
    elif body is not None:
        headers.append(b"Content-Length: %d" % len(body))
    chance.shuffle(headers)
    lines = [_spelt(chance, header) for header in headers]
    version = chance.choice((b"1.1",) * 30 + (b"1.0",))
    return Request(
        b"%b %b HTTP/%b\r\n%b\r\n\r\n" % (method, target, version, b"\r\n".join(lines)) + (body or b""), framed
    )


def _key(chance: Random) -> str:
    return chance.choice(KEYS).id if chance.random() < 0.4 else chance.choice(("all", "all", "pages", "owned"))


def _authorization(chance: Random) -> bytes:
    text = text_of(_key(chance)).encode()
    if chance.random() < 0.1:
        odd = (
            b"",
            b"Bearer",
            b"Basic eDp5",
            b"Bearer " + text + b"0",
            b"Bearer " + text.upper(),
            b"Bearer csk_nobody_" + text[-64:],
            text,
        )
        return chance.choice((*odd, b"Bearer " + text + b", Bearer " + text, b"Bearer " + text.replace(b"csk", b"cpk")))
    return chance.choice((b"Bearer ", b"Bearer ", b"bearer ", b"BEARER  ")) + text


def _again(chance: Random, headers: list[bytes]) -> bytes:
    """One of these headers for a second time, often with another value."""
    name, _, value = chance.choice(headers).partition(b": ")
    return name + b": " + chance.choice((value, value, *heads.IDS[:2]))


def _spelt(chance: Random, header: bytes) -> bytes:
    """The same header in another way to write it."""
    name, _, value = header.partition(b":")
    value = value.strip(b" ")
    case = chance.randrange(8)
    name = name.lower() if case == 0 else name.upper() if case == 1 else name
    return (
        name + chance.choice((b": ",) * 8 + (b":", b":  ", b": \t")) + value + chance.choice((b"",) * 8 + (b" ", b"  "))
    )


def _chunks(chance: Random, body: bytes) -> bytes:
    pieces = []
    while body:
        size = chance.randint(1, len(body))
        piece, body = body[:size], body[size:]
        extension = chance.choice((b"",) * 6 + (b";x=y", b";x"))
        pieces.append(chance.choice((b"%x", b"%X", b"0%x")) % size + extension + b"\r\n" + piece + b"\r\n")
    trailers = b"".join(chance.choice(heads.TRAILERS) + b"\r\n" for _ in range(chance.choice((0, 0, 1, 1, 2))))
    return b"".join(pieces) + b"0\r\n" + trailers + b"\r\n"


def _wrong(chance: Random, *, undurable: bool) -> Request:
    """A request of which it may be unclear what it says, or where it ends."""
    data = _increment(chance, undurable=undurable).data
    kind = chance.randrange(6)
    if kind == 5:
        chunked = b"POST /v1/counters/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunks(
            chance, b'{"delta": 2}'
        )
        return Request(chunked[: chunked.rindex(b"\r\n0\r\n")] + b"\r\nzz\r\n", framed=True)
    if kind == 0:
        return Request(bodies.damaged(chance, data), framed=False)
    line, _, rest = data.partition(b"\r\n")
    if kind == 1:
        method, _, version = line.split(b" ", 1)[0], *line.rpartition(b" ")[1:]
        return Request(b"%b %b %b\r\n" % (method, chance.choice(heads.TARGETS), version) + rest, framed=False)
    if kind == 2:
        line = line.replace(
            b"HTTP/1.1", chance.choice((b"HTTP/1.2", b"http/1.1", b"HTTP/2.0", b"HTTP/1.1 ", b"", b"HTTP/1.10"))
        )
        return Request(chance.choice((b"", b"\r\n", b"\n", b" ")) + line + b"\r\n" + rest, framed=False)
    return Request(line + b"\r\n" + chance.choice(heads.WRONG) + b"\r\n" + rest, framed=False)
