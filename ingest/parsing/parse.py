"""Request bodies as batches of increments, and everything that can be wrong with them. Pure."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ingest.parsing import plain
from ingest.publishing.batch import Batch
from shared.model.words import MAX_DELTA, MAX_SUM, Increment, flaw_of_delta, flaw_of_id, flaw_of_name
from shared.wire import strict_json

MAX_ITEMS: Final = 100_000
"""Increments in one request."""
SMALL: Final = 16_384
"""Bytes of a body about one counter; a larger one is not good, and to say what is wrong with it may take long."""
_ITEM_FIELDS: Final = frozenset({"counter", "delta", "id"})
_SINGLE_FIELDS: Final = frozenset({"delta", "id"})
_STRING: Final = re.compile(rb'"(?:[^"\\\n]++|\\[^\n])*+"?')
"""It ends with its line, as lines are read one by one; closed or not it is looked at once."""
_SPACE: Final = b" \t\r\n"
"""What JSON calls so; Python's own idea is larger."""


class BodyError(Exception):
    """The request can't be used: 400, or 422 with the field that is wrong, or 413."""

    def __init__(self, status: int, detail: str, field_: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field_


@dataclass(slots=True)
class Parsed:
    """The good increments, and why the others are not."""

    batch: Batch = field(default_factory=Batch)
    rejected: list[dict[str, Any]] = field(default_factory=list)


def single(body: bytes, by: str | None) -> tuple[int, str | None]:
    """Delta and id of one increment: from a body `{"delta", "id"}`, or an empty one and `?by=`."""
    delta: object = 1
    client_id: object = None
    if body and body.strip(_SPACE):
        data = _load(body)
        if type(data) is not dict:
            raise BodyError(400, 'the body must be a JSON object such as {"delta": 1}, or empty')
        for name in data:
            if name not in _SINGLE_FIELDS:
                raise BodyError(422, f"unknown field {name[:100]!r}: only 'delta' and 'id' are known", name)
        if by is not None and "delta" in data:
            raise BodyError(422, "say the delta in the body or in ?by=, not in both", "by")
        delta = data.get("delta", 1)
        client_id = data.get("id")
    if by is not None:
        delta = whole(by, "by")
    if flaw := flaw_of_delta(delta):
        raise BodyError(422, f"'{'by' if by is not None else 'delta'}' {flaw}", "by" if by is not None else "delta")
    if client_id is not None and (flaw := flaw_of_id(client_id)):
        raise BodyError(422, f"'id' {flaw}", "id")
    return delta, client_id  # type: ignore[return-value] # checked just above


def whole(text: str, name: str) -> int:
    """A whole number in a query."""
    digits = text[1:] if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):  # noqa: PLR2004 (int64 has 19)
        raise BodyError(422, f"'{name}' must be a whole number", name)
    return int(text)


def batch(body: bytes) -> Parsed:
    """An array of increments, the same as NDJSON, or `{"counters": {name: delta}}`."""
    text = body.strip(_SPACE)
    if not text:
        raise BodyError(400, 'the body is empty: send [{"counter": …}, …] or {"counters": {…}}')
    if text.count(b"{") + text.count(b"[") > MAX_ITEMS + 2:
        _refuse_many_objects(text)
    if (good := plain.batch(text, MAX_ITEMS)) is not None:
        return Parsed(good)
    if text[:1] == b"[":
        items = _load(text)
        parsed = _items(items)
    elif text[:1] == b"{":
        parsed = _object_or_lines(text)
    elif b"\n" in text:
        parsed = _lines(text)
    else:
        _load(text)
        raise BodyError(400, 'the body must be an array of increments, NDJSON of them, or {"counters": {…}}')
    if not parsed.batch.increments:
        if not parsed.rejected:
            raise BodyError(400, "the body holds no increments")
        first = parsed.rejected[0]
        where = f"item {first['index']}" if "index" in first else f"counter {first['counter'][:100]!r}"
        raise BodyError(400, f"no increment is good; {where}: {first['reason']}")
    return parsed


def _load(text: bytes) -> Any:
    try:
        return strict_json.loads(text)
    except strict_json.JsonError as error:
        raise BodyError(400, f"the body is {error}") from None


def _object_or_lines(text: bytes) -> Parsed:
    """One object is a map or a line; if it does not parse as one, there may be many lines."""
    try:
        data = strict_json.loads(text)
    except strict_json.JsonError as error:
        if b"\n" not in text or _is_json(text):
            raise BodyError(400, f"the body is {error}") from None
        return _lines(text)
    if "counters" in data:
        if len(data) > 1:
            other = next(name for name in data if name != "counters")
            raise BodyError(422, f"unknown field {other[:100]!r} beside 'counters'", other)
        return _map(data["counters"])
    return _items([data])


def _is_json(text: bytes) -> bool:
    """One document, then, though with a name twice."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _lines(text: bytes) -> Parsed:
    _too_many(text.count(b"\n"))
    lines = [line for line in text.split(b"\n") if line.strip(_SPACE)]
    return _items([_line(line) for line in lines])


class _Broken:
    """A line that is not JSON."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _line(line: bytes) -> Any:
    try:
        return strict_json.loads(line)
    except strict_json.JsonError as error:
        return _Broken(str(error))


def _too_many(count: int) -> None:
    if count > MAX_ITEMS:
        raise BodyError(413, f"{count} increments or other objects in one request; at most {MAX_ITEMS}: send several")


def _refuse_many_objects(text: bytes) -> None:
    """Before they are made: millions of them would keep all others waiting for seconds."""
    rest = _STRING.sub(b"", text)
    _too_many(rest.count(b"{") + rest.count(b"[") - 2)


def _map(counters: Any) -> Parsed:
    if type(counters) is not dict:
        raise BodyError(422, "'counters' must be an object of names and deltas", "counters")
    _too_many(len(counters))
    parsed = Parsed()
    sums = parsed.batch.sums
    for name, delta in counters.items():
        if type(delta) is int and -MAX_DELTA <= delta <= MAX_DELTA and (flaw := flaw_of_name(name)) is None:
            sums[name] = delta
        else:
            flaw = flaw_of_name(name)
            reason = f"the name {flaw}" if flaw else f"the delta {flaw_of_delta(delta)}"
            parsed.rejected.append({"counter": name, "reason": reason})
    parsed.batch.increments = len(sums)
    return parsed


def _items(items: list[Any]) -> Parsed:
    """Item by item: a name is checked once, and a good item costs a few dictionary look-ups."""
    _too_many(len(items))
    parsed = Parsed()
    sums, counts = parsed.batch.sums, parsed.batch.counts
    for index, item in enumerate(items):
        if type(item) is dict:
            name = item.get("counter")
            delta = item.get("delta", 1)
            if (
                len(item) == 1 + ("delta" in item)
                and type(name) is str
                and type(delta) is int
                and -MAX_DELTA <= delta <= MAX_DELTA
            ):
                there = sums.get(name)
                if there is None:
                    if flaw_of_name(name) is None:
                        sums[name] = delta
                        continue
                elif -MAX_SUM <= there + delta <= MAX_SUM:
                    sums[name] = there + delta
                    counts[name] = counts.get(name, 1) + 1
                    continue
        reason = _take(item, parsed.batch)
        if reason is not None:
            parsed.rejected.append({"index": index, "reason": reason})
    parsed.batch.increments = len(items) - len(parsed.rejected)
    return parsed


def _take(item: Any, into: Batch) -> str | None:
    """Take an item that is not plainly good, or say what is wrong with it."""
    if isinstance(item, _Broken):
        return item.reason
    if type(item) is not dict:
        return "must be an object with 'counter'"
    unknown = item.keys() - _ITEM_FIELDS
    if unknown:
        return f"unknown field {min(unknown)[:100]!r}: only 'counter', 'delta' and 'id' are known"
    if "counter" not in item:
        return "'counter' is missing"
    name, delta, client_id = item["counter"], item.get("delta", 1), item.get("id")
    flaws = (
        ("counter", flaw_of_name(name)),
        ("delta", flaw_of_delta(delta)),
        ("id", None if client_id is None else flaw_of_id(client_id)),
    )
    for field_, flaw in flaws:
        if flaw:
            return f"'{field_}' {flaw}"
    if client_id is not None:
        into.keyed.append(Increment(name, delta, client_id))
        return None
    there = into.sums.get(name)
    if there is None:
        into.sums[name] = delta
    elif -MAX_SUM <= there + delta <= MAX_SUM:
        into.sums[name] = there + delta
        into.counts[name] = into.counts.get(name, 1) + 1
    else:
        return f"the deltas of one counter in a batch may sum to ±{MAX_SUM} at most: send it in another batch"
    return None
