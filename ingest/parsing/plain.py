"""Reads batches as most clients send them. They are read by schema and checked as a whole, since a loop over the items
would take longer than reading the JSON. All other batches are left to `parse`, which can say what is wrong with them.
Pure.
"""

from collections import Counter
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from ingest.publishing.batch import Batch
from shared.model.words import MAX_SUM, Increment
from shared.wire.plain import RESERVED, Delta, Id, Name, SumOnce, is_plain, surely_unique


class _Event(Struct, forbid_unknown_fields=True, gc=False):
    counter: Name


class _Sum(Struct, forbid_unknown_fields=True, gc=False):
    counter: Name
    delta: Delta


class _EventOnce(Struct, forbid_unknown_fields=True, gc=False):
    counter: Name
    id: Id


class _Map(Struct, forbid_unknown_fields=True, gc=False):
    counters: dict[Name, Delta]


_ITEMS: Final[dict[tuple[bool, bool], tuple[Decoder[Any], Decoder[Any], int]]] = {
    (False, False): (Decoder(list[_Event]), Decoder(_Event), 2),
    (True, False): (Decoder(list[_Sum]), Decoder(_Sum), 3),
    (False, True): (Decoder(list[_EventOnce]), Decoder(_EventOnce), 4),
    (True, True): (Decoder(list[SumOnce]), Decoder(SumOnce), 5),
}
"""By whether items have a delta, and an id: what reads an array and what reads lines; and the strings of an item."""
_MAP: Final = Decoder(_Map)


def batch(text: bytes, most: int) -> Batch | None:
    """The batch in an array or in lines of up to `most` items that have the same fields, or in a map. None if it is
    anything else.
    """
    if not is_plain(text):
        return None
    first = text[: text.find(b"}") + 1]
    try:
        if first.startswith(b"{") and b'"counters"' in first:
            found, strings = _map(text)
        else:
            found, strings = _items(text, b'"delta"' in first, b'"id"' in first)
    except DecodeError:
        return None
    if not 0 < found.increments <= most or not surely_unique(text, strings):
        return None
    names = found.sums.keys() or {item.counter for item in found.keyed}
    return found if names.isdisjoint(RESERVED) else None


def _map(text: bytes) -> tuple[Batch, int]:
    sums = _MAP.decode(text).counters
    return Batch(sums, {}, [], len(sums)), 1 + len(sums)


def _items(text: bytes, delta: bool, once: bool) -> tuple[Batch, int]:
    array, line, strings = _ITEMS[delta, once]
    if text[:1] == b"[":
        items = array.decode(text)
    else:
        items = line.decode_lines(text)
        if not _are_lines(text, len(items)):
            raise DecodeError
    names = [item.counter for item in items]
    deltas = [item.delta for item in items] if delta else [1] * len(items)
    if once:
        keyed = list(map(Increment, names, deltas, [item.id for item in items]))
        return Batch(keyed=keyed, increments=len(items)), strings * len(items)
    return _summed(names, deltas), strings * len(items)


def _are_lines(text: bytes, items: int) -> bool:
    """Whether each item has a line of its own. The parser also reads items that share a line, or have several."""
    return text.count(b"\n") == text.count(b"}\n{") == items - 1


def _summed(names: list[str], deltas: list[int]) -> Batch:
    sums = dict(zip(names, deltas, strict=True))
    if len(sums) == len(names):
        return Batch(sums, {}, [], len(names))
    one = deltas[0]
    counts = Counter(names)
    if deltas.count(one) == len(deltas):
        for name, number in counts.items():
            sums[name] = number * one
    else:
        sums = dict.fromkeys(counts, 0)
        for name, delta in zip(names, deltas, strict=True):
            sums[name] += delta
    largest, least = max(deltas), min(deltas)
    if max(largest, -least) * len(deltas) > MAX_SUM:
        raise DecodeError
    return Batch(sums, {name: number for name, number in counts.items() if number > 1}, [], len(names))
