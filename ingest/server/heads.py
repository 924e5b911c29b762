"""Owns what a request's head may be: how long, and that it is one of HTTP/1. Pure."""

import re
from typing import Final

from aiohttp.http_exceptions import LineTooLong

from ingest.http.problems import Problem

LONGEST_LINE: Final = 16_384
"""Most bytes in the first line of a request. Names of 400 bytes may be percent-encoded, and a query may hold many."""
LONGEST_HEADER: Final = 8_192
"""Most bytes in the name and value of one header. It differs from LONGEST_LINE, as only the number in the parser's
error tells which limit was exceeded.
"""
LONGEST_HEAD: Final = 32_768
"""Most bytes of the first line and all headers together."""
FEWER_OTHERS: Final = 4
"""A head with bytes beyond ASCII may have 1/4 of that: as text, it may take four bytes for each character."""
_LINE: Final = re.compile(rb"(?:\r\n)*[A-Z-]+ [^ \r\n]+ HTTP/1\.[01]\r\n")


def not_http(status: int = 400) -> Problem:
    return Problem(status, "the request is not valid HTTP", close=True)


def is_too_long(head: bytes | bytearray) -> bool:
    """Whether a head, or the part of it that has come, is longer than it may be."""
    return len(head) > LONGEST_HEAD or (len(head) > LONGEST_HEAD // FEWER_OTHERS and not head.isascii())


def flaw_of(head: bytes | bytearray) -> Problem | None:
    """Why a request is refused though the parser takes its head."""
    return None if _LINE.match(head) else not_http()


def too_long(head: bytes | bytearray) -> Problem:
    """Why a head is refused that is longer than it may be."""
    if head.lstrip(b"\r\n").find(b"\r\n", 0, LONGEST_LINE) < 0:
        return _url_too_long()
    longest = LONGEST_HEAD if head.isascii() else f"{LONGEST_HEAD // FEWER_OTHERS} (they are not all ASCII)"
    return Problem(431, f"the headers are longer than {longest} bytes", close=True)


def line_too_long(error: LineTooLong) -> Problem:
    """The same of a head in which the parser has found a line that is too long."""
    if LONGEST_HEADER in error.args:
        return Problem(431, f"a header is longer than {LONGEST_HEADER} bytes", close=True)
    return _url_too_long()


def _url_too_long() -> Problem:
    return Problem(414, f"the URL is longer than {LONGEST_LINE} bytes", close=True)
