"""Reads the data of our own messages as we write it. Data that is written otherwise is left to `content`. Pure."""

from typing import Annotated, Final, NamedTuple

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType
from msgspec.json import Decoder

from shared.model.words import MAX_SUM, Increment
from shared.wire.content import Content
from shared.wire.plain import RESERVED, Name, SumOnce, is_plain, surely_unique


class _Data(Struct, forbid_unknown_fields=True, gc=False):
    counters: dict[Name, Annotated[int, Meta(ge=-MAX_SUM, le=MAX_SUM)]]
    created: int
    counts: dict[str, int] | UnsetType = UNSET
    keyed: list[SumOnce] | UnsetType = UNSET
    retried: bool | UnsetType = UNSET


_DATA: Final = Decoder(_Data)


class OwnData(NamedTuple):
    """The data of a message of ours."""

    content: Content
    created: int
    retried: bool


def own_data(text: bytes) -> OwnData | None:
    """What the text says; None if a schema can't tell."""
    if not is_plain(text):
        return None
    try:
        data = _DATA.decode(text)
    except DecodeError:
        return None
    sums, counts, keyed = data.counters, data.counts or {}, data.keyed or []
    given = (data.counts is not UNSET) + (data.keyed is not UNSET) + (data.retried is not UNSET)
    if not surely_unique(text, 2 + given + len(sums) + len(counts) + 5 * len(keyed)):
        return None
    items = tuple([Increment(item.counter, item.delta, item.id) for item in keyed])
    if not sums.keys().isdisjoint(RESERVED) or not RESERVED.isdisjoint([item.counter for item in keyed]):
        return None
    return OwnData(Content(sums, counts, items), data.created, data.retried is True)
