"""What a handler reads of a request: body, query, names in the path."""

import asyncio
import math
import re
import zlib
from typing import Final
from urllib.parse import parse_qsl, unquote

import aiohttp
from aiohttp import web

from ingest.problems import Problem
from shared.errors import OverloadedError
from shared.words import flaw_of_id, flaw_of_name

MOST_OF_ONE: Final = 1_048_576
"""Bytes of a body that is about one counter. What is good has a few thousand; it is said of the rest what is wrong."""
_PACKED: Final = 1_024
"""Bytes of a compressed body that may become so many that unpacking them takes too long for the event loop."""
MOST_BODIES: Final = 8
"""Of the largest size, arriving at once."""
_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")
_DECIMAL: Final = frozenset("0123456789.+-eE")
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""zlib's `wbits` of the content codings that are understood."""


class Bodies:
    """Owns the bytes of bodies that are still arriving: all of them together take so much memory and no more."""

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        self._arriving = 0

    async def of(self, request: web.BaseRequest, most: int | None = None) -> bytes:
        """All of it, decompressed; usually it came with the head of the request and is there."""
        content = request.content
        try:
            body = content.read_nowait(-1) if content.is_eof() else await self._receive(request)
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {self._timeout:g} seconds", close=True) from None
        except (OSError, aiohttp.ClientError, aiohttp.http.HttpProcessingError, web.RequestPayloadError):
            raise Problem(400, "the body broke off, or is not what its headers say", close=True) from None
        limit = self._limit if most is None else min(most, self._limit)
        if len(body) > limit:
            raise _too_large(limit)
        if body and (coding := request.headers.get("Content-Encoding")) is not None:
            coding = coding.strip().lower()
            if len(body) <= _PACKED:
                return _decoded(body, coding, limit)
            return await asyncio.to_thread(_decoded, body, coding, limit)
        return body

    async def _receive(self, request: web.BaseRequest) -> bytes:
        if (request.content_length or 0) > self._limit:
            raise _too_large(self._limit)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer itself has not begun
        content = request.content
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout):
                while not content.at_eof():
                    chunk = await content.readany()
                    chunks.append(chunk)
                    size += len(chunk)
                    self._arriving += len(chunk)
                    if size > self._limit:
                        raise _too_large(self._limit)
                    if self._arriving > MOST_BODIES * self._limit:
                        raise OverloadedError("too many large bodies are arriving at once")
        finally:
            self._arriving -= size
        return b"".join(chunks)


def _decoded(body: bytes, coding: str, limit: int) -> bytes:
    """Here and not in aiohttp, which takes a gzip stream that broke off for a whole one."""
    if coding == "identity":
        return body
    if coding not in _WINDOWS:
        raise Problem(
            415,
            f"the Content-Encoding {coding[:100]!r} is not understood: use gzip, deflate or none",
            field="Content-Encoding",
            headers={"Accept-Encoding": "gzip, deflate"},
        )
    stream = zlib.decompressobj(_WINDOWS[coding])
    try:
        decoded = stream.decompress(body, limit + 1)
    except zlib.error:
        raise Problem(400, f"the body is not valid {coding}", field="Content-Encoding") from None
    if len(decoded) > limit:
        raise _too_large(limit)
    if not stream.eof or stream.unused_data:
        raise Problem(400, f"the body is not one whole {coding} stream", field="Content-Encoding")
    return decoded


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is larger than {limit} bytes: send several requests", close=True)


class Query:
    """The query of a request. Each handler asks for what it knows, then says `done`: the rest is a mistake."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = {}
        if not text:
            return
        try:
            if not text.isascii():
                text.encode()  # no UTF-8 came, if this fails
            if "%" in text and _BAD_ESCAPE.search(text):
                raise ValueError
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
        except ValueError:
            raise Problem(400, "the query is not valid percent-encoded UTF-8", field="query") from None
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.pop(name, [])

    def one(self, name: str) -> str | None:
        values = self._values.pop(name, None)
        if values is None:
            return None
        if len(values) > 1:
            raise Problem(422, f"'{name}' stands {len(values)} times in the query: say it once", field=name)
        return values[0]

    def choice(self, name: str, *choices: str) -> str | None:
        value = self.one(name)
        if value is not None and value not in choices:
            raise Problem(422, f"'{name}' must be {' or '.join(map(repr, choices))}", field=name)
        return value

    def seconds(self, name: str, most: float) -> float | None:
        """A number of seconds; more than `most` means `most`."""
        value = self.one(name)
        if value is None:
            return None
        try:
            number = float(value) if _DECIMAL.issuperset(value) else math.nan
        except ValueError:
            number = math.nan
        if not number >= 0:
            raise Problem(422, f"'{name}' must be a number of seconds, 0 or more", field=name)
        return min(number, most)

    def done(self) -> None:
        for name in self._values:
            raise Problem(422, f"unknown parameter {name[:100]!r} in the query", field=name)


def name_of(segment: str) -> str:
    """The counter that a segment of the path names."""
    name = unescape(segment, "name")
    if flaw := flaw_of_name(name):
        raise Problem(422, f"the counter's name {flaw}", field="name")
    return name


def unescape(segment: str, field: str) -> str:
    if "%" not in segment:
        return segment
    try:
        if _BAD_ESCAPE.search(segment):
            raise ValueError
        return unquote(segment, errors="strict")
    except ValueError:
        raise Problem(400, f"the {field} in the path is not valid percent-encoded UTF-8", field=field) from None


def idempotency_key_of(request: web.BaseRequest) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None:
        flaw = flaw_of_id(key)
        if len(request.headers.getall("Idempotency-Key")) > 1:
            flaw = "stands more than once: send one"
        if flaw:
            raise Problem(422, f"the header Idempotency-Key {flaw}", field="Idempotency-Key")
    return key
