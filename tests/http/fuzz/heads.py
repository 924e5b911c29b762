"""What stands in the heads of generated requests: names, queries and headers, of which many are unusual or wrong."""

from typing import Final

from tests.http.fuzz.side import FULL, ORIGIN, text_of

NAMES: Final = (
    b"c", b"c", b"%63", b"d", b"page:1", b"page%3A1", b"p%61ge:1", b"pages", b"%C3%A9", b"a%2Fb", FULL.encode(),
)  # fmt: skip
ODD_NAMES: Final = (
    b"", b".", b"%2E", b"..", b"__x__", b"%zz", b"%", b"%FF", b"%00", b"a/b", b"c/", b"/c", b"page:1/", b"c#x",
    b"c%23", b"\xc3\xa9", b"x" * 400, b"x" * 401, b"%78" * 401, b"a|b", b'"', b"c;x", b"c%3Fby=3", b"page:%2F..%2Fc",
    b"c/reset", b"c/shards",
)  # fmt: skip
QUERIES: Final = (
    b"by=3", b"by=-2", b"by=+4", b"by=%33", b"by=x", b"by=1&by=2", b"by=", b"by=9007199254740992", b"x=1", b"",
    b"BY=1", b"return=value", b"return=value&by=2", b"return=no", b"return=value&wait=applied&timeout=0",
    b"ack=none&return=value", b"wait=applied&timeout=0", b"wait=applied&timeout=0.05", b"wait=no", b"timeout=1",
    b"ack=all", b"%zz", b"by=3&x", b"key=" + text_of("web").encode(), b"key=" + text_of("all").encode(), b"by=2&key=x",
    b"key=&key=",
)  # fmt: skip
LISTS: Final = (
    b"/v1/counters?max_age=0&name=c&name=page:1", b"/v1/counters?name=page:1&max_age=0", b"/v1/counters?name=c&name=c",
    b"/v1/counters?prefix=p&max_age=0", b"/v1/counters?max_age=0&limit=2", b"/v1/counters?limit=0", b"/v1/counters",
    b"/v1/counters?name=c&prefix=p", b"/v1/counters?name=%C3%A9&name=a%2Fb", b"/v1/counters?name=", b"/v1/counters?",
    b"/v1/counters?name=c&x=1", b"/v1/counters?name=%zz", b"/v1/counters?name=c+d&max_age=x", b"/v1/counters/c?name=c",
    b"/v1/counters?name=c&key=" + text_of("all").encode(), b"/v1/counters?name=c#x", b"/v1/counters/c?max_age=1",
)  # fmt: skip
IDS: Final = (
    b"one", b"two", b"three", b"", b"k" * 1_000, b"k" * 1_001, b"\xc3\xa9", b"\xe9", b"a b",
    b"own-" + b"0" * 32 + b".x",
)  # fmt: skip
OTHERS: Final = (
    b"Accept: */*", b"User-Agent: it/1 (x; y)", b"Content-Type: text/plain", b"X_Y: ", b"X-Forwarded-For: 10.0.0.1",
    b"X: \t y", b"Connection: keep-alive", b"Connection: Keep-Alive", b"connection: close",
    b"Connection: keep-alive, close", b"Connection: x", b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate",
    b"Access-Control-Request-Method: POST", b"TE: trailers", b"Origin: " + ORIGIN.encode(), b"Origin: http://h",
    b"Origin: null", b"Content-Encoding: identity", b"Content-Encoding: x", b"Expect: 100-continue", b"Expect: x",
    b"Proxy-Connection: close", b"Trailer: Idempotency-Key", b"Content-Encoding: gzip", b"Accept-Encoding: gzip",
    b"Cookie: a=b; c", b"If-Match: *", b"Range: bytes=0-1", b"Transfer-Encoding: identity",
)  # fmt: skip
PLAIN_OTHERS: Final = 6
WRONG: Final = (
    b"x", b": x", b"X : y", b" X: y", b"X: y\r\n z", b"X: y\r\n\tz", b"X\x00: y", b"X: \x00", b"X: y\nZ: z",
    b"X: y\rZ: z", b"X: \x7f", b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: +0",
    b"Content-Length: 0, 0", b"Content-Length: 0x0", b"Content-Length : 2", b"Content-Length: \t0",
    b"Content-Length: 00", b"Content-Length: ", b"Content-Length: " + b"9" * 30, b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding:\tchunked",
    b"transfer-encoding: Chunked", b"Connection: upgrade\r\nUpgrade: x", b"Connection: upgrade\r\nUpgrade: websocket",
    b"Upgrade: h2c", b"Sec-WebSocket-Key1: x", b"Host: a b", b"Host:", b"Host: other.example", b"X: " + b"y" * 9_000,
    b"\xc3\xa9: x", b"X: \xe9",
)  # fmt: skip
TARGETS: Final = (
    b"/", b"*", b"http://h/v1/counters/c", b"HTTP://other/v1/counters/c?by=2", b"//h/v1/counters/c", b"h:80",
    b"v1/counters/c",
)  # fmt: skip
TRAILERS: Final = (
    b"Idempotency-Key: stolen", b"Authorization: Bearer " + text_of("all").encode(), b"Host: other", b"X: y",
    b"Content-Length: 9",
)  # fmt: skip
