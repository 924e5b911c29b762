"""Owns the short way of the commonest request, a POST of one increment: what it looks like, and its answer.

aiohttp's objects for a request and its response cost more than all the rest. Without the short way, a POST reaches 0.4
times the rate of an empty aiohttp handler, with it 0.9 (`python -m bench --only post`). Only what is plain and good is
taken; the rest, and all that is wrong, is left to aiohttp and the routes before anything of it was counted.
"""

import asyncio
import re
from functools import lru_cache
from typing import Final, NamedTuple

from ingest.http.problems import Problem, problem_of
from ingest.http.requests import name_of
from ingest.http.responses import written
from ingest.parsing import parse
from ingest.publishing.batch import Batch
from ingest.publishing.publishing import Publishing
from ingest.routes.increments import ACCEPTED, add, answer_of
from shared.model.errors import CountersinkError
from shared.model.words import flaw_of_id

LARGEST: Final = 4_096
"""Bytes of a request, which is below each of aiohttp's limits."""
_MOST_HEADERS: Final = 64
_LINE: Final = re.compile(rb"POST /v1/counters/([A-Za-z0-9._~!$&'()*+,;=:@%-]+) HTTP/1\.1\r\n")
_HEADER: Final = re.compile(rb"([A-Za-z0-9_-]+): *([ -~]*)")
_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,3}")
_LEFT: Final = frozenset(
    {
        "content-encoding",
        "expect",
        "http2-settings",
        "proxy-connection",
        "sec-websocket-key1",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that change what the request means, or how aiohttp reads it."""


class _Head(NamedTuple):
    length: int
    key: str | None


class Lane:
    """`begin` counts a request; what it returns is asked for the answer with `end`, once it is durable."""

    def __init__(self, publishing: Publishing, max_body_bytes: int) -> None:
        self._publishing = publishing
        self._max_body_bytes = max_body_bytes

    def begin(self, data: bytes, tenant: str) -> tuple[Batch, asyncio.Future[None]] | None:
        """None if the data is not one whole request of this kind; then nothing was counted."""
        if len(data) > LARGEST or (line := _LINE.match(data)) is None:
            return None
        start = line.end()
        end = data.find(b"\r\n\r\n", start)
        if end < 0 or (head := _head(data[start:end])) is None:
            return None
        body = data[end + 4 :]
        if len(body) != head.length or head.length > self._max_body_bytes:
            return None
        try:
            name = name_of(line[1].decode())
            delta, client_id = parse.single(body, None)
            draft = add(self._publishing, name, delta, head.key if client_id is None else client_id, tenant)
        except (Problem, parse.BodyError, CountersinkError):
            return None
        return draft, self._publishing.durable(draft)

    def end(self, draft: Batch, durable: asyncio.Future[None]) -> bytes | None:
        """The bytes of the answer; None if the publish was broken off, so that there is none."""
        if durable.cancelled():
            return None
        error = durable.exception()
        if error is None:
            return written(ACCEPTED, answer_of(draft))
        assert isinstance(error, Exception), "a future holds no other"  # noqa: S101
        return problem_of(error).written()


@lru_cache(maxsize=512)
def _head(block: bytes) -> _Head | None:
    """What the headers say; None if they are not plain. Clients send the same ones again and again."""
    lines = block.split(b"\r\n")
    if len(lines) > _MOST_HEADERS:
        return None
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        name = header[1].decode().lower()
        if name in headers or name in _LEFT:
            return None
        headers[name] = header[2].decode().rstrip(" ")
    if "host" not in headers or headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length, key = headers.get("content-length", "0"), headers.get("idempotency-key")
    if not _LENGTH.fullmatch(length) or (key is not None and flaw_of_id(key)):
        return None
    return _Head(int(length), key)
