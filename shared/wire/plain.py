"""What JSON must be like so that a schema can read it in place of our own checks, which take several times as long. All
other JSON is left to those. Pure.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.model.words import MAX_DELTA, MAX_ID_BYTES, MAX_NAME_BYTES

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_BYTES)]
"""In a text that is plain, and if it is not one of `RESERVED`."""
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES)]
Delta = Annotated[int, Meta(ge=-MAX_DELTA, le=MAX_DELTA)]
RESERVED: Final = frozenset({".", ".."})
"""Names that no counter may have, beside `__…__`."""


class SumOnce(Struct, forbid_unknown_fields=True, gc=False):
    """An increment with an id."""

    counter: Name
    delta: Delta
    id: Id


def is_plain(text: bytes) -> bool:
    """Whether names in it may be counters, and each quote begins or ends a string: ASCII without escapes and without
    DEL holds no controls, as JSON allows no others.
    """
    return not (not text.isascii() or b"\\" in text or b"\x7f" in text or (b"_" in text and b'"__' in text))


def surely_unique(text: bytes, strings: int) -> bool:
    """Whether no name stands twice in an object. The parser would keep the last value without a word. A plain text has
    no more strings than the values that were read.
    """
    return text.count(b'"') == 2 * strings
