"""The bytes of answers that aiohttp does not write: headers of all answers, whole JSON answers, and RFC 9457 problem
documents.
"""

import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import orjson

SECURE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Server": "Countersink",  # instead of aiohttp's, which tells the versions of aiohttp and Python
}
"""In all answers: browsers take them for what they say they are, and tell no other site of our URLs."""
PUBLIC: Final = {**SECURE, "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
"""Headers of answers that pages of all sites may show and read."""
JSON: Final = {"Content-Type": "application/json", **SECURE}
_JSON: Final = "".join([f"{name}: {value}\r\n" for name, value in JSON.items()])
HEADS: Final = {code: f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{_JSON}".encode() for code in (200, 202)}
"""How the good answers to plain requests begin."""
PROBLEM: Final = {"Content-Type": "application/problem+json", **SECURE}
LONGEST_FIELD: Final = 8_192
"""Characters of a field's name that are told. The client has chosen it, and may have sent megabytes."""
MOST_IN_PROBLEM: Final = 1_000
"""How many counters are named, at most. It is as many as the Python client sends at once."""


def line(body: bytes) -> bytes:
    """The JSON of an answer, as a line: a shell's prompt then begins on the next one."""
    return b"%b\n" % body


def written(status: int, body: bytes) -> bytes:
    """The bytes of a whole answer to a plain request. `body` lacks the end of its line."""
    date = _date_at(int(time.time()))
    return b"%bContent-Length: %d\r\nDate: %b\r\n\r\n%b\n" % (HEADS[status], len(body) + 1, date, body)


def document(status: int, detail: str, field: str | None = None, counters: Sequence[str] = ()) -> bytes:
    content: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    content["detail"] = detail
    if field is not None:
        content["field"] = field[:LONGEST_FIELD].encode(errors="replace").decode()
    if counters:
        content["counters"] = counters[:MOST_IN_PROBLEM]
    return orjson.dumps(content)


def problem(
    status: int, detail: str, *, field: str | None = None, headers: Mapping[str, str] | None = None, close: bool = True
) -> bytes:
    """A whole answer that says what is wrong. Whoever writes it closes the connection if it says so."""
    body = line(document(status, detail, field))
    all_headers = {
        **PROBLEM,
        **(headers or {}),
        "Content-Length": str(len(body)),
        "Date": _date_at(int(time.time())).decode(),
        **({"Connection": "close"} if close else {}),
    }
    lines = "".join([f"{name}: {value}\r\n" for name, value in all_headers.items()])
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode() + body


@lru_cache(maxsize=1)
def _date_at(second: int) -> bytes:
    """The value of the header Date, formatted once a second."""
    return formatdate(second, usegmt=True).encode()
