"""Owns the memory for bodies of requests, from their arrival until they have been parsed: its total is bounded."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import aiohttp
from aiohttp import web

from ingest.access.caller import CALLER
from ingest.http.fair_lock import FairLock
from ingest.http.problems import Problem
from shared.model.errors import OverloadedError, ShareError

T = TypeVar("T")

MOST_BODIES: Final = 8
"""The room for all bodies, in bodies of the largest size."""
LARGE: Final = 262_144
"""Bytes. Parsing a larger body would keep the event loop busy for too long, so that is done in a thread."""
MOST_OF_ONE: Final = 1_048_576
"""Most bytes of a body about one counter or job. A valid one has a few thousand; a larger one is told what is wrong."""
SMALL_OF_ONE: Final = 16_384
"""As LARGE, for bodies about one counter or job: it can take long to find what is wrong with a larger one."""
TOO_LARGE: Final = 413
_KEPT: Final = 8
"""1/8 of the room is kept for small bodies."""
_SMALL: Final = 512
"""A body is small if it takes at most 1/512 of the room: 128 KiB with the default COUNTERSINK_MAX_BODY_BYTES."""
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The content codings that clients may use, with zlib's `wbits` for each."""


class Bodies:
    """Shares the room for bodies among tenants. A tenant may hold one body, or as many bytes as then are still free.

    Large bodies are parsed one at a time. Slow uploads of large bodies cannot keep small bodies out.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        self._room = MOST_BODIES * limit
        self._lock = FairLock()
        self._tenants: dict[str, int] = {}
        self.held = 0

    async def read_one(self, request: web.BaseRequest, parse: Callable[[bytes], T]) -> T:
        """What `parse` returns for the body of a request about one counter or one job."""
        return (await self.read(request, parse, MOST_OF_ONE, SMALL_OF_ONE))[0]

    async def read(
        self, request: web.BaseRequest, parse: Callable[[bytes], T], most: int | None = None, small: int = LARGE
    ) -> tuple[T, int]:
        """What `parse` returns for the body, and the size of the body after decompression. A body of more than `most`
        bytes is refused; one of more than `small` bytes is parsed in a thread.
        """
        limit = self._limit if most is None else min(most, self._limit)
        with self._share(request) as share:
            body = await self._arrived(request, share, limit)
            coding = request.headers.get("Content-Encoding", "identity").strip().lower()
            if len(body) <= small and (unpacked := _small(body, coding, limit, small)) is not None:
                return parse(unpacked), len(unpacked)
            share.grow_to(len(body))
            async with self._lock.of(share.tenant):
                return await asyncio.to_thread(_parsed, body, coding, limit, parse)

    def announced(self, request: web.BaseRequest, most: int | None = None) -> int:
        """The size of the body as its headers announce it, or 0; a `Problem` 413 if that is too large."""
        limit = self._limit if most is None else most
        length = request.content_length or 0
        if length > limit:
            raise _too_large(limit)
        return length

    @contextmanager
    def _share(self, request: web.BaseRequest) -> "Iterator[_Share]":
        share = _Share(self, request[CALLER].tenant)
        try:
            yield share
        finally:
            if share.bytes:
                self._take(share.tenant, -share.bytes)

    async def _arrived(self, request: web.BaseRequest, share: "_Share", limit: int) -> bytes:
        content = request.content
        try:
            body = content.read_nowait(-1) if content.is_eof() else await self._receive(request, share, limit)
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {self._timeout:g} seconds", close=True) from None
        except (OSError, aiohttp.ClientError, aiohttp.http.HttpProcessingError, web.RequestPayloadError):
            raise Problem(400, "the body ended early or does not match its headers", close=True) from None
        if len(body) > limit:
            raise _too_large(limit)
        return body

    async def _receive(self, request: web.BaseRequest, share: "_Share", limit: int) -> bytes:
        """Read a body that has not arrived yet. Its announced size is reserved at once, so that it is refused before it
        is sent and not half-way.
        """
        share.grow_to(self.announced(request, limit))
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # so that aiohttp does not take this for the answer
        content = request.content
        chunks: list[bytes] = []
        size = 0
        async with asyncio.timeout(self._timeout):
            while not content.at_eof():
                chunk = await content.readany()
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                share.grow_to(size)
        return b"".join(chunks)

    def admit(self, tenant: str, more: int, size: int) -> None:
        """Reserve `more` bytes for a tenant's body of now `size` bytes, or raise the error that says why not."""
        free = self._room - self.held - more
        held = self._tenants.get(tenant, 0)
        kept = self._room // _KEPT if size > self._room // _SMALL else 0
        if free < kept:
            raise OverloadedError("too many large bodies are arriving at once")
        if held and held + more > free:
            raise ShareError(
                f"this client ({tenant}) is sending {held} bytes in other requests; {more} more would exceed its share"
                f" of {self._room}: send fewer large bodies at once"
            )
        self._take(tenant, more)

    def _take(self, tenant: str, more: int) -> None:
        self.held += more
        held = self._tenants.get(tenant, 0) + more
        if held:
            self._tenants[tenant] = held
        else:
            del self._tenants[tenant]


class _Share:
    """The part of the room that one body has reserved."""

    def __init__(self, bodies: Bodies, tenant: str) -> None:
        self._bodies = bodies
        self.tenant = tenant
        self.bytes = 0

    def grow_to(self, size: int) -> None:
        if size > self.bytes:
            self._bodies.admit(self.tenant, size - self.bytes, size)
            self.bytes = size


def _parsed(body: bytes, coding: str, limit: int, parse: Callable[[bytes], T]) -> tuple[T, int]:
    """Decompress and parse a body. Runs in a thread."""
    decoded = _decoded(body, coding, limit)
    return parse(decoded), len(decoded)


def _small(body: bytes, coding: str, limit: int, small: int) -> bytes | None:
    """The decompressed body; None if it has more than `small` bytes."""
    if limit <= small or coding not in _WINDOWS:
        return _decoded(body, coding, limit)
    try:
        return _decoded(body, coding, small)
    except Problem as problem:
        if problem.status == TOO_LARGE:
            return None
        raise


def _decoded(body: bytes, coding: str, limit: int) -> bytes:
    """The decompressed body. aiohttp could do this, but it accepts a gzip stream that ends early."""
    if coding == "identity" or not body:
        return body
    if coding not in _WINDOWS:
        raise Problem(
            415,
            f"the Content-Encoding {coding[:100]!r} is not supported: use gzip, deflate or none",
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
    return Problem(TOO_LARGE, f"the body is larger than {limit} bytes: send several requests", close=True)
