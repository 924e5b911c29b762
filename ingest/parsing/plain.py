"""Reads batches as most clients send them. They are read by schema and checked as a whole, since a loop over the items
would take longer than reading the JSON. All other batches are left to `parse`, which can say what is wrong with them.
Pure.
"""

from collections import Counter
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from ingest.accept.batch import Batch
from shared.model.words import MAX_SUM, Increment
from shared.wire.codec import RESERVED, Delta, Id, Name, SumOnce, is_plain, surely_unique


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
_SAMPLE: Final = 128
"""So many items show whether many of a batch are alike."""


def batch(text: bytes, most: int) -> Batch | None:
    """The batch in an array or in lines of up to `most` items that have the same fields, or in a map. None if it is
    anything else.
    """
    if not is_plain(text):
        return None
    first = text[: text.find(b"}") + 1]
    try:
        if first.startswith(b"{") and b'"counters"' in first:
            found = _map(text)
        else:
            found = _items(text, b'"delta"' in first, b'"id"' in first)
    except DecodeError:
        return None
    if not 0 < found.increments <= most:
        return None
    names = found.sums.keys() or {item.counter for item in found.keyed}
    return found if names.isdisjoint(RESERVED) else None


def _map(text: bytes) -> Batch:
    sums = _MAP.decode(text).counters
    _check_strings(text, 1 + len(sums))
    return Batch(sums, {}, [], len(sums))


def _items(text: bytes, delta: bool, once: bool) -> Batch:
    array, line, strings = _ITEMS[delta, once]
    is_array = text[:1] == b"["
    times = None if once else _alike(text, is_array)
    if times is not None:
        items = [line.decode(item + b"}") for item in times] if is_array else list(map(line.decode, times))
        text = b"".join(times)
    elif is_array:
        items = array.decode(text)
    else:
        items = line.decode_lines(text)
        if not _are_lines(text, len(items)):
            raise DecodeError
    _check_strings(text, strings * len(items))
    names = [item.counter for item in items]
    deltas = [item.delta for item in items] if delta else [1] * len(items)
    if once:
        keyed = list(map(Increment, names, deltas, [item.id for item in items]))
        return Batch(keyed=keyed, increments=len(items))
    return _summed(names, deltas) if times is None else _multiplied(names, deltas, times)


def _alike(text: bytes, is_array: bool) -> Counter[bytes] | None:
    """How often each text of an item is there, if many are alike: then it is read once. The last brace of an item in an
    array is left out.
    """
    if is_array and not text.endswith(b"}]"):
        return None
    text, between = (text[1:-2], b"},") if is_array else (text, b"\n")
    some = text.split(between, _SAMPLE)[:_SAMPLE]
    if len(set(some)) >= len(some) - len(some) // 8:
        return None
    return Counter(text.split(between))


def _are_lines(text: bytes, items: int) -> bool:
    """Whether each item has a line of its own. The parser also reads items that share a line, or have several."""
    return text.count(b"\n") == text.count(b"}\n{") == items - 1


def _check_strings(text: bytes, strings: int) -> None:
    if not surely_unique(text, strings):
        raise DecodeError


def _summed(names: list[str], deltas: list[int]) -> Batch:
    sums = dict(zip(names, deltas, strict=True))
    if len(sums) == len(names):
        return Batch(sums, {}, [], len(names))
    counts = Counter(names)
    sums = dict.fromkeys(counts, 0)
    for name, delta in zip(names, deltas, strict=True):
        sums[name] += delta
    return _bounded(sums, counts, deltas, len(names))


def _multiplied(names: list[str], deltas: list[int], times: Counter[bytes]) -> Batch:
    sums: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name, delta, number in zip(names, deltas, times.values(), strict=True):
        sums[name] = sums.get(name, 0) + delta * number
        counts[name] = counts.get(name, 0) + number
    return _bounded(sums, counts, deltas, times.total())


def _bounded(sums: dict[str, int], counts: dict[str, int], deltas: list[int], increments: int) -> Batch:
    largest, least = max(deltas), min(deltas)
    if max(largest, -least) * increments > MAX_SUM:
        raise DecodeError
    return Batch(sums, {name: number for name, number in counts.items() if number > 1}, [], increments)
