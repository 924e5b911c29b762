"""Limits bodies of requests, from their arrival until they are parsed: memory, decompression, and work done in
vain.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import aiohttp
from aiohttp import web

from ingest.access.callers import Caller
from ingest.http.problems import Problem
from ingest.parsing.parse import BodyError
from shared.http.shares import FairLock, Shares
from shared.model.errors import OverloadedError, ShareError
from shared.model.words import Lately

# Decompresses bodies. It stops when a body grows too large, or too many times as large as it was.


RATIO: Final = 100
"""A body may become this many times as large, beyond the part of the limit that each may take."""
_PART: Final = 4
"""1/4 of the largest body is allowed whatever the ratio: increments of one counter are very much alike."""
TOO_LARGE: Final = 413


_CODINGS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The content codings, with what zlib calls their format."""
CODINGS: Final = tuple(name for name in _CODINGS if not name.startswith("x-"))
"""The content codings that clients are told to use."""


def allowed(body: bytes, coding: str, limit: int) -> int:
    if coding not in _CODINGS:
        return max(len(body), limit)
    return min(limit, max(limit // _PART, RATIO * len(body)))


def small(body: bytes, coding: str, most: int, size: int) -> bytes | None:
    """The decompressed body, which may have `most` bytes; None if it has more than `size`."""
    if most <= size or coding not in _CODINGS:
        return unpacked(body, coding, most)
    try:
        return unpacked(body, coding, size)
    except Problem as problem:
        if problem.status == TOO_LARGE:
            return None
        raise


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """The decompressed body. aiohttp could do this, but it accepts a gzip stream that ends early."""
    if coding == "identity" or not body:
        return body
    if coding not in _CODINGS:
        raise Problem(
            415,
            f"the Content-Encoding {coding[:100]!r} is not supported: use {', '.join(CODINGS)} or none",
            field="Content-Encoding",
            headers={"Accept-Encoding": ", ".join(CODINGS)},
        )
    stream = zlib.decompressobj(_CODINGS[coding])
    try:
        decoded = stream.decompress(body, most + 1)
    except zlib.error:
        raise Problem(400, f"the body is not valid {coding}", field="Content-Encoding") from None
    if len(decoded) > most:
        raise too_large(most, f" or {RATIO} times as large as it is when compressed")
    if not stream.eof or stream.unused_data:
        raise Problem(400, f"the body is not one whole {coding} stream", field="Content-Encoding")
    return decoded


def too_large(limit: int, more: str = "") -> Problem:
    return Problem(TOO_LARGE, f"the body is larger than {limit} bytes{more}: send several requests", close=True)


# Refuses the bodies of a tenant if too much of what it sent was decoded and parsed in vain. Pure.


RATE: Final = 1_048_576
"""Bytes of refused bodies a second that a tenant may send for long."""
PER_ITEM: Final = 64
"""A refused item of a batch costs as much as this many bytes."""
FREE: Final = 1_024
"""Bytes. A body that is not compressed and no larger costs no more than any other request."""
MOST_TENANTS: Final = 10_000
"""Tenants whose debts are known: those with the latest refusals."""


class RefusedWork:
    """A tenant's debt grows with what is refused, and shrinks with time. There are no shares, since what the work took
    is gone, and not given back.
    """

    def __init__(self, most: int, seconds: Callable[[], float]) -> None:
        """`most`: the largest debt with which a tenant is still served."""
        self._most = most
        self._seconds = seconds
        self._debts: Lately[str, tuple[float, float]] = Lately(MOST_TENANTS)
        """The debt of each tenant, and since when it has been that."""

    def check(self, tenant: str) -> None:
        debt = self._debt(tenant)
        if debt > self._most:
            raise ShareError(
                f"too many requests of this client ({tenant}) were refused lately: read the answers, and correct the"
                " requests before you send them again",
                (debt - self._most) / RATE,
            )

    def charge(self, tenant: str, size: int, items: int = 0) -> None:
        cost = size + PER_ITEM * items
        if cost <= FREE:
            return
        self._debts[tenant] = self._debt(tenant) + cost, self._seconds()

    def _debt(self, tenant: str) -> float:
        debt, since = self._debts.get(tenant, (0.0, 0.0))
        return max(debt - RATE * (self._seconds() - since), 0.0)


T = TypeVar("T")

MOST_BODIES: Final = 8
"""The room for all bodies, in bodies of the largest size."""
LARGE: Final = 65_536
"""Bytes. A larger body is parsed in a thread, since it would keep the event loop busy for too long."""
SMALL: Final = 4_096
"""As LARGE, for bodies that are not of the plain form: it can take long to find what is wrong with one."""
MOST_OF_ONE: Final = 1_048_576
"""Most bytes of a body about one counter or job. A valid one has a few thousand; a larger one is told what is wrong."""
SMALL_OF_ONE: Final = 16_384
"""As SMALL, for bodies about one counter or job."""
MOST_BODIES_REFUSED: Final = 2
"""Bodies of the largest size: what a tenant may have refused at once."""
_KEPT: Final = 8
"""1/8 of the room is kept for small bodies."""
_SMALL: Final = 512
"""A body is small if it takes at most 1/512 of the room: 128 KiB with the default COUNTERSINK_MAX_BODY_BYTES."""


class Bodies(Shares):
    """Shares the room for bodies among tenants.

    Large bodies are parsed one at a time. Slow uploads of large bodies cannot keep small bodies out. Compressed bodies
    take room for what they may become.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        super().__init__(MOST_BODIES * limit)
        self.largest = limit
        """Bytes of the largest body."""
        self._timeout = timeout
        self._lock = FairLock()
        self._refused = RefusedWork(MOST_BODIES_REFUSED * limit, time.monotonic)

    async def read_one(self, request: web.BaseRequest, caller: Caller, parse: Callable[[bytes], T]) -> T:
        limit = min(MOST_OF_ONE, self.largest)
        with self._reserving(caller) as reserved:
            return (await self._read(request, reserved, limit, parse, slow=SMALL_OF_ONE))[0]

    async def read_many(
        self,
        request: web.BaseRequest,
        caller: Caller,
        parse: Callable[[bytes], T],
        quick: Callable[[bytes], T | None] | None = None,
    ) -> tuple[T, int]:
        """What `parse` returns for the body of a batch, and the size of the body after decompression. `quick` is tried
        first: it returns the same, or None, and takes less time.
        """
        with self._reserving(caller) as reserved:
            return await self._read(request, reserved, self.largest, parse, slow=SMALL, quick=quick)

    def check(self, tenant: str, size: int) -> None:
        """Raise `ShareError` if this body is not to be parsed, as too much of this tenant was refused lately."""
        if size > FREE:
            self._refused.check(tenant)

    @contextmanager
    def judging(self, tenant: str, size: int, items: int = 0) -> Iterator[None]:
        """In this context, the batch in a body of this size is judged. If that fails, this many items are refused."""
        try:
            yield
        except (BodyError, Problem):
            self._refused.charge(tenant, size, items)
            raise

    def refused(self, tenant: str, size: int, items: int) -> None:
        """Call it if this many items of a batch were refused, which took this many bytes of its body."""
        self._refused.charge(tenant, size, items)

    async def _read(
        self,
        request: web.BaseRequest,
        reserved: "_Reserved",
        limit: int,
        parse: Callable[[bytes], T],
        *,
        slow: int,
        quick: Callable[[bytes], T | None] | None = None,
    ) -> tuple[T, int]:
        """Without `quick`, or if that returns None, a body of more than `slow` bytes is parsed in a thread."""
        body = await self._arrived(request, reserved, limit)
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity" or len(body) > FREE:
            self._refused.check(reserved.tenant)
        most = min(limit, allowed(body, coding, self.largest))
        reserved.decoded = len(body)
        try:
            if len(body) <= LARGE and (decoded := small(body, coding, most, LARGE)) is not None:
                reserved.decoded = len(decoded)
                if quick is not None and (found := quick(decoded)) is not None:
                    return found, len(decoded)
                if len(decoded) <= slow:
                    return parse(decoded), len(decoded)
            reserved.grow_to(most if coding != "identity" else len(body))
            async with self._lock.of(reserved.tenant):
                return await asyncio.to_thread(_parsed, body, coding, most, parse, reserved)
        except BodyError as error:
            self._refused.charge(reserved.tenant, reserved.decoded, error.items)
            raise
        except Problem as problem:
            self._refused.charge(reserved.tenant, most if problem.status == TOO_LARGE else reserved.decoded)
            raise

    def announced(self, request: web.BaseRequest, most: int | None = None) -> int:
        """The size of the body as its headers announce it, or 0; a `Problem` 413 if that is too large."""
        limit = self.largest if most is None else most
        length = request.content_length or 0
        if length > limit:
            raise too_large(limit)
        return length

    @contextmanager
    def _reserving(self, caller: Caller) -> "Iterator[_Reserved]":
        reserved = _Reserved(self, caller.tenant)
        try:
            yield reserved
            caller.check_key()  # the body, or a turn to parse it, may have taken long
        finally:
            if reserved.bytes:
                self.leave(reserved.tenant, reserved.bytes)

    async def _arrived(self, request: web.BaseRequest, reserved: "_Reserved", limit: int) -> bytes:
        content = request.content
        try:
            body = content.read_nowait(-1) if content.is_eof() else await self._receive(request, reserved, limit)
        except TimeoutError:
            raise Problem(
                408, f"the body did not arrive within {self._timeout:g} seconds: send the request again", close=True
            ) from None
        except (OSError, aiohttp.ClientError, web.RequestPayloadError):
            raise Problem(
                400, "the body ended early, does not match its headers, or comes in too many tiny chunks", close=True
            ) from None
        if len(body) > limit:
            raise too_large(limit)
        return body

    async def _receive(self, request: web.BaseRequest, reserved: "_Reserved", limit: int) -> bytes:
        """Read a body that has not arrived yet. Its announced size is reserved at once, so that it is refused before it
        is sent and not half-way.
        """
        reserved.grow_to(self.announced(request, limit))
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        content = request.content
        body = bytearray()
        async with asyncio.timeout(self._timeout):
            while not content.at_eof():
                body += await content.readany()
                if len(body) > limit:
                    raise too_large(limit)
                reserved.grow_to(len(body))
                await asyncio.sleep(0)  # what was held back is there at once, and others want a turn
        if (error := content.exception()) is not None:  # `readany` does not raise it if data came in the same piece
            raise error
        return bytes(body)

    def admit(self, tenant: str, more: int, size: int) -> None:
        """Reserve `more` bytes for a tenant's body of now `size` bytes, or raise the error that says why not."""
        kept = self.largest // _KEPT if size > self.largest // _SMALL else 0
        if self.left(more) < kept:
            raise OverloadedError("too many large bodies are arriving at once: try again later")
        if self.excess(tenant, more):
            raise ShareError(
                f"this client ({tenant}) is sending {self.held_by(tenant)} bytes in other requests; {more} more would"
                f" exceed its share of {self.largest}: send fewer large bodies at once"
            )
        self.enter(tenant, more)


class _Reserved:
    def __init__(self, bodies: Bodies, tenant: str) -> None:
        self._bodies = bodies
        self.tenant = tenant
        self.bytes = 0
        self.decoded = 0
        """The size of the body after decompression, or before if that has failed."""

    def grow_to(self, size: int) -> None:
        if size > self.bytes:
            self._bodies.admit(self.tenant, size - self.bytes, size)
            self.bytes = size


def _parsed(body: bytes, coding: str, most: int, parse: Callable[[bytes], T], reserved: _Reserved) -> tuple[T, int]:
    """Decompress and parse a body. Runs in a thread."""
    decoded = unpacked(body, coding, most)
    reserved.decoded = len(decoded)
    return parse(decoded), len(decoded)
