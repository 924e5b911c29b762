"""Owns the bytes of bodies, from when they arrive until they have been read: all together take so much and no more."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import aiohttp
from aiohttp import web

from ingest.access.door import CALLER
from ingest.http.fair_lock import Turns
from ingest.http.problems import Problem
from shared.model.errors import OverloadedError, ShareError

T = TypeVar("T")

MOST_BODIES: Final = 8
"""Of the largest size, held at once."""
LARGE: Final = 262_144
"""Bytes. Parsing a larger body would keep the event loop busy for too long, so that is done in a thread."""
MOST_OF_ONE: Final = 1_048_576
"""Most bytes of a body about one counter or job. A valid one has a few thousand; a larger one is told what is wrong."""
SMALL_OF_ONE: Final = 16_384
"""As LARGE, for bodies about one counter or job: it can take long to find what is wrong with a larger one."""
TOO_LARGE: Final = 413
_KEPT: Final = 8
"""One part of so many of the room is kept for small bodies."""
_SMALL: Final = 512
"""Those that take one part of so many of it at most: 128 KiB, unless the largest size is set."""
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""zlib's `wbits` of the content codings that are understood."""


class Bodies:
    """A tenant may hold as many bytes as are left free after him, or one body. Large ones are parsed one at a time.

    When uploads that do not end have all that large ones may have, small ones still get in.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        self._room = MOST_BODIES * limit
        self._turns = Turns()
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
            coding = coding_of(request)
            if len(body) <= small and (unpacked := _small(body, coding, limit, small)) is not None:
                return parse(unpacked), len(unpacked)
            share.grow_to(len(body))
            async with self._turns.of(share.tenant):
                return await asyncio.to_thread(_parsed, body, coding, limit, parse)

    def announced(self, request: web.BaseRequest, most: int | None = None) -> int:
        """How large the body is to be, as far as its head says; 413 if nothing of it need be looked at."""
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
            raise Problem(400, "the body broke off, or is not what its headers say", close=True) from None
        if len(body) > limit:
            raise _too_large(limit)
        return body

    async def _receive(self, request: web.BaseRequest, share: "_Share", limit: int) -> bytes:
        """Room is kept for all that was announced: to refuse half of a body helps nobody."""
        share.grow_to(self.announced(request, limit))
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer itself has not begun
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
        """Count `more`, with which a body has `size`, as held by the tenant; or say why not."""
        free = self._room - self.held - more
        held = self._tenants.get(tenant, 0)
        kept = self._room // _KEPT if size > self._room // _SMALL else 0
        if free < kept:
            raise OverloadedError("too many large bodies are arriving at once")
        if held and held + more > free:
            raise ShareError(
                f"{held} bytes of bodies of this client ({tenant}) are held, and {more} more would be beyond its share"
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
    """What one body takes of the room."""

    def __init__(self, bodies: Bodies, tenant: str) -> None:
        self._bodies = bodies
        self.tenant = tenant
        self.bytes = 0

    def grow_to(self, size: int) -> None:
        if size > self.bytes:
            self._bodies.admit(self.tenant, size - self.bytes, size)
            self.bytes = size


def coding_of(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Encoding", "identity").strip().lower()


def _parsed(body: bytes, coding: str, limit: int, parse: Callable[[bytes], T]) -> tuple[T, int]:
    """In a thread."""
    decoded = _decoded(body, coding, limit)
    return parse(decoded), len(decoded)


def _small(body: bytes, coding: str, limit: int, small: int) -> bytes | None:
    """Decompressed, unless it is no longer small then."""
    if limit <= small or coding not in _WINDOWS:
        return _decoded(body, coding, limit)
    try:
        return _decoded(body, coding, small)
    except Problem as problem:
        if problem.status == TOO_LARGE:
            return None
        raise


def _decoded(body: bytes, coding: str, limit: int) -> bytes:
    """Here and not in aiohttp, which takes a gzip stream that broke off for a whole one."""
    if coding == "identity" or not body:
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
    return Problem(TOO_LARGE, f"the body is larger than {limit} bytes: send several requests", close=True)
