"""Decompresses bodies. It stops when a body grows too large, or too many times as large as it was."""

import zlib
from typing import Final

from ingest.http.problems import Problem

RATIO: Final = 100
"""So many times as large may a body become, beyond the part of the limit that each may take."""
_PART: Final = 4
"""1/4 of the largest body is allowed whatever the ratio: increments of one counter are very much alike."""
TOO_LARGE: Final = 413
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The content codings that clients may use, with zlib's `wbits` for each."""


def allowed(body: bytes, coding: str, limit: int) -> int:
    """How many bytes the body may have when it is decompressed."""
    if coding not in _WINDOWS:
        return max(len(body), limit)
    return min(limit, max(limit // _PART, RATIO * len(body)))


def small(body: bytes, coding: str, most: int, size: int) -> bytes | None:
    """The decompressed body, which may have `most` bytes; None if it has more than `size`."""
    if most <= size or coding not in _WINDOWS:
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
    if coding not in _WINDOWS:
        raise Problem(
            415,
            f"the Content-Encoding {coding[:100]!r} is not supported: use gzip, deflate or none",
            field="Content-Encoding",
            headers={"Accept-Encoding": "gzip, deflate"},
        )
    stream = zlib.decompressobj(_WINDOWS[coding])
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
