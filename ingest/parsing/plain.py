"""Reads batches as most clients send them. They are checked as a whole, since a loop over the items would take longer
than reading the JSON. All other batches are left to `parse`, which can say what is wrong with them. Pure.
"""

from collections import Counter
from typing import Any, Final

import orjson

from ingest.publishing.batch import Batch
from shared.model.words import MAX_DELTA, MAX_NAME_BYTES, MAX_SUM

_HEAD: Final = 400
"""Bytes at the beginning of a batch that show whether its items have ids."""


def batch(text: bytes, most: int) -> Batch | None:
    """The batch in an array of up to `most` items with a counter and a delta, or in a map. None if it is anything else.

    Without escapes each quote begins or ends a string, so as many quotes as the strings that survived parsing need
    mean that no name stood twice in an object. ASCII without DEL holds no controls, as JSON allows no others.
    """
    if not text.isascii() or b"\\" in text or b"\x7f" in text or b"__" in text or b'"id"' in text[:_HEAD]:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    strings, odd = divmod(text.count(b'"'), 2)
    if type(value) is list and strings == 3 * len(value) and not odd:
        found = _items(value)
    elif type(value) is dict and type(value.get("counters")) is dict and strings == 1 + len(value["counters"]):
        found = _map(value)
    else:
        return None
    if found is None or not 0 < found.increments <= most:
        return None
    names = found.sums
    if "" in names or "." in names or ".." in names or max(map(len, names)) > MAX_NAME_BYTES:
        return None
    return found


def _items(items: list[Any]) -> Batch | None:
    """Each item with a counter that is a string has three strings at least, so with three on average it has no more."""
    try:
        names = [item["counter"] for item in items]
        deltas = [item["delta"] for item in items]
    except (KeyError, TypeError):
        return None
    if {*map(type, names)} != {str} or {*map(type, deltas)} != {int}:
        return None
    equal = deltas.count(deltas[0]) == len(deltas)
    least, most = (deltas[0], deltas[0]) if equal else (min(deltas), max(deltas))
    weight = max(most, -least)
    if weight > MAX_DELTA or weight * len(items) > MAX_SUM:
        return None
    counts = Counter(names)
    if len(counts) == len(items):
        return Batch(dict(zip(names, deltas, strict=True)), {}, [], len(items))
    if equal:
        sums = {name: n * most for name, n in counts.items()}
    else:
        sums = dict.fromkeys(counts, 0)
        for name, delta in zip(names, deltas, strict=True):
            sums[name] += delta
    return Batch(sums, {name: n for name, n in counts.items() if n > 1}, [], len(items))


def _map(value: dict[str, Any]) -> Batch | None:
    sums = value["counters"]
    deltas = sums.values()
    if len(value) != 1 or {*map(type, deltas)} != {int} or min(deltas) < -MAX_DELTA or max(deltas) > MAX_DELTA:
        return None
    return Batch(sums, {}, [], len(sums))
