"""Reads increments from the bodies of requests, JSON, lines or forms, and finds everything that is wrong with them; and
reads the commonest batches faster (`quick`). Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from ingest.accept.drafts import Batch
from shared.model.words import ALL_DELTAS, MAX_SUM, Deltas, Increment, flaw_of_delta, flaw_of_name
from shared.wire import strict_json
from shared.wire.codec import FIELDS, MAX_ITEMS, RESERVED, Delta, Id, Name, SumOnce, added, is_plain, surely_unique
from shared.wire.strict_json import SPACE, Flaw, flaw_of_fields

# Checks a JSON object that a client sends: its fields, and the value of each. Pure.


class BodyError(Exception):
    """The request is answered with this status: 400, 413, or 422 with the field that is wrong."""

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.items = 0
        """How many items of a batch were looked at and refused."""


@dataclass(frozen=True)
class ObjectShape:
    """The fields that an object may have. Any other field is refused, so that a misspelt one is noticed."""

    like: str
    """The end of the sentence "the body must be …", for the error."""
    fields: Mapping[str, Flaw]
    required: tuple[str, ...] = ()

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the fields that were sent, all of them valid, or raise `BodyError`. Where no field is required, an
        empty body is an object without fields.
        """
        try:
            data = strict_json.loads(body)
        except strict_json.JsonError as error:
            if not body.strip(strict_json.SPACE):
                if not self.required:
                    return {}
                raise BodyError(400, f"the body is empty: send {self.like}") from None
            raise BodyError(400, f"the body is {error}") from None
        if type(data) is not dict:
            raise BodyError(400, f"the body must be {self.like}")
        return self.check(data)

    def check(self, data: dict[str, Any]) -> dict[str, Any]:
        if found := flaw_of_fields(data, self.fields, self.required):
            field, flaw = found
            raise BodyError(422, flaw, field)
        return data


def must_be(what: str, is_it: Callable[[Any], object]) -> Flaw:
    """Says that a value must be this, unless it is."""
    return lambda value: None if is_it(value) else f"must be {what}"


def whole_from(least: int, most: int) -> Flaw:
    what = f"a whole number from {least} to {most}"
    return must_be(what, lambda value: type(value) is int and least <= value <= most)


flaw_of_flag: Final = must_be("true or false", lambda value: type(value) is bool)


# Reads an increment from a form, as browsers send it: `counter=page%3Ahome&delta=2`. Pure.


LONGEST: Final = 8_192
"""Bytes. The longest name and the longest id, with all their bytes percent-encoded, have 4,200."""
_BEGINS: Final = re.compile(rb"(?:counter|delta|id)=")
_LIKE_FORM: Final = re.compile(rb"[A-Za-z_]++=")
_MOST_DIGITS: Final = 4_000
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9a-fA-F]{2})")


def whole_of(text: str) -> int | None:
    """The whole number that the text is, in digits of ASCII. Python reads no more of them than some thousands."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def comes_as_form(body: bytes) -> bool:
    """Whether it is a form, whatever its Content-Type says. No JSON begins like one."""
    return body[:1] in b"cdi" and _BEGINS.match(body) is not None


def fields(body: bytes) -> dict[str, Any]:
    """The fields of a form. A whole number under `delta` becomes one; all else is text, and may be wrong."""
    try:
        if len(body) > LONGEST or _BAD_ESCAPE.search(body):
            raise ValueError
        text = body.rstrip(b"\r\n").decode()
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=8)
    except ValueError:
        raise BodyError(400, f"the body is not a form of at most {LONGEST} bytes in percent-encoded UTF-8") from None
    found: dict[str, Any] = dict(pairs)
    if len(found) < len(pairs):
        raise BodyError(400, "the form has a field twice: send each field once")
    if "delta" in found and (delta := whole_of(found["delta"])) is not None:
        found["delta"] = delta
    return found


MOST_REJECTIONS: Final = 100
"""Most rejections in one answer. The body may be small and hold as many bad items as there may be in a request."""
LONGEST_TOLD: Final = 1_000
"""Characters of a bad name that an answer repeats. It may have megabytes."""
_SINGLE: Final = ObjectShape(
    'empty or a JSON object such as {"delta": 1, "id": "…"}', {name: FIELDS[name] for name in ("delta", "id")}
)
MOST_IN_BATCH: Final = MAX_ITEMS
"""Most increments in one batch over HTTP. An event, pushed or not, may have as many as a message: `MAX_ITEMS`."""
_COMMAS: Final = 4
"""Commas outside of strings, for each increment: it has three fields at most."""
_PIECE: Final = 65_536
_STRING: Final = re.compile(rb'"(?:[^"\\\n]++|\\[^\n])*+"?')
"""A string in JSON. It ends with its line even if it is not closed, as lines are read one by one."""


@dataclass(slots=True)
class Parsed:
    """The valid increments, and what is wrong with the first `MOST_REJECTIONS` of the others."""

    batch: Batch = field(default_factory=Batch)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    bad: int = 0
    """How many are not valid."""

    def reject(self, **rejection: Any) -> None:
        self.bad += 1
        if self.bad <= MOST_REJECTIONS:
            self.rejected.append(rejection)


def single(body: bytes, by: str | None, allowed: Deltas = ALL_DELTAS) -> tuple[int, str | None]:
    """The delta and the id of one increment. Its delta may stand in the query, as `?by=`, instead of the body."""
    data = {}
    if body:
        is_form = body[:1] != b"{" and comes_as_form(body)  # JSON is the commonest, and pays no call
        data = _SINGLE.check(fields(body)) if is_form else _SINGLE.read(body)
    name, delta = "delta", data.get("delta", 1)
    if by is not None:
        if "delta" in data:
            raise BodyError(422, "send the delta in the body or in ?by=, not in both", "by")
        name, delta = "by", whole_of(by)
        if delta is None:
            raise BodyError(422, "'by' must be a whole number", "by")
        if flaw := flaw_of_delta(delta):
            raise BodyError(422, f"'by' {flaw}", "by")
    if flaw := allowed.flaw_of(delta):
        raise BodyError(422, f"with this key, '{name}' {flaw}", name)
    return delta, data.get("id")


def batch(body: bytes, allowed: Deltas = ALL_DELTAS) -> Parsed:
    """Read an array of increments, NDJSON of increments, or `{"counters": {name: delta}}`. Items whose deltas are not
    allowed are rejected.
    """
    text = body.strip(SPACE)
    if not text:
        raise BodyError(400, 'the body is empty: send [{"counter": …}, …] or {"counters": {…}}')
    if comes_as_form(text):
        return _good(_items([fields(text)], allowed))
    check_values(text, MOST_IN_BATCH)
    if allowed is ALL_DELTAS and (good := plain_batch(text, MOST_IN_BATCH)) is not None:
        return Parsed(good)
    if text[:1] == b"[":
        items = load(text)
        parsed = _items(items, allowed)
    elif text[:1] == b"{":
        parsed = _object_or_lines(text, allowed)
    elif b"\n" in text:
        parsed = _lines(text, allowed)
    elif _LIKE_FORM.match(text):
        raise BodyError(400, "a form must begin with one of its fields: counter, which it needs, delta or id")
    else:
        load(text)
        raise BodyError(400, 'the body must be an array of increments, NDJSON of them, or {"counters": {…}}')
    return _good(parsed)


def _good(parsed: Parsed) -> Parsed:
    if not parsed.batch.increments:
        if not parsed.rejected:
            raise BodyError(400, "the body holds no increments")
        first = parsed.rejected[0]
        where = f"item {first['index']}" if "index" in first else f"counter {first['counter'][:100]!r}"
        error = BodyError(400, f"no increment is valid; {where}: {first['reason']}")
        error.items = parsed.bad
        raise error
    return parsed


def quick(body: bytes) -> Parsed | None:
    """The same as `batch` for a batch of the plain form, which is read in less time; None if it is of another form."""
    good = plain_batch(body.strip(SPACE), MOST_IN_BATCH)
    return None if good is None else Parsed(good)


def load(text: bytes) -> Any:
    try:
        return strict_json.loads(text)
    except strict_json.JsonError as error:
        raise BodyError(400, f"the body is {error}") from None


BY_NAME: Final = '; deltas by name are sent as {"counters": {"visits": 3}}'


def _object_or_lines(text: bytes, allowed: Deltas) -> Parsed:
    """Read a body that begins with an object. If it is not one JSON text, it may be NDJSON."""
    try:
        data = strict_json.loads(text)
    except strict_json.JsonError as error:
        if b"\n" not in text or strict_json.is_json(text):
            raise BodyError(400, f"the body is {error}") from None
        return _lines(text, allowed)
    if "counters" in data:
        if len(data) > 1:
            other = next(name for name in data if name != "counters")
            raise BodyError(422, f"unknown field {other[:100]!r} next to 'counters'", other)
        return _map(data["counters"], allowed)
    parsed = _items([data], allowed)
    if parsed.rejected and "counter" not in data:
        parsed.rejected[0]["reason"] += BY_NAME
    return parsed


def _lines(text: bytes, allowed: Deltas) -> Parsed:
    _too_many(text.count(b"\n"), MOST_IN_BATCH)
    items: list[Any] = []
    broken = 0
    for line in text.split(b"\n"):
        if line.strip(SPACE):
            item = _line(line) if broken < MOST_REJECTIONS else _other_line(line)
            broken += type(item) is _Broken
            items.append(item)
    return _items(items, allowed)


class _Broken:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _line(line: bytes) -> Any:
    try:
        return strict_json.loads(line)
    except strict_json.JsonError as error:
        return _Broken(str(error))


def _other_line(line: bytes) -> Any:
    """As `_line`, where nobody is told what is wrong with the line, as enough others are."""
    text = line.strip(SPACE)
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return _NOT_TOLD
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _NOT_TOLD
    return _line(text)


_NOT_TOLD: Final = _Broken("not valid JSON")


def _too_many(count: int, most: int) -> None:
    if count > most:
        raise BodyError(413, f"more than {most} increments or other values in one request: send several")


def check_values(text: bytes, most: int) -> None:
    """Refuse a body with the values of more than `most` increments before it is parsed: to make millions of values
    would keep the process busy for seconds. What stands in strings does not count. It is done piece by piece, since
    nothing else could run meanwhile.
    """
    if text.count(b"{") + text.count(b"[") <= most + 2 and text.count(b",") <= _COMMAS * most:
        return
    plain_strings = b"\\" not in text and b"\n" not in text
    objects, commas = -2, 0
    for rest in _outside_plain_strings(text) if plain_strings else _outside_strings(text):
        objects += rest.count(b"{") + rest.count(b"[")
        commas += rest.count(b",")
        _too_many(max(objects, commas - _COMMAS * most + most), most)


def _outside_plain_strings(text: bytes) -> Iterator[bytes]:
    """What stands outside of strings, in a text of one line without escapes."""
    inside = 0
    for begin in range(0, len(text), _PIECE):
        parts = text[begin : begin + _PIECE].split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2


def _outside_strings(text: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + _PIECE) + 1 or len(text)
        yield _STRING.sub(b"", text[begin:end])
        begin = end


def _map(counters: Any, allowed: Deltas) -> Parsed:
    if type(counters) is not dict:
        raise BodyError(422, "'counters' must be an object of names and deltas", "counters")
    _too_many(len(counters), MOST_IN_BATCH)
    parsed = Parsed()
    sums = parsed.batch.sums
    least, most = allowed
    for name, delta in counters.items():
        if type(delta) is int and least <= delta <= most and (flaw := flaw_of_name(name)) is None:
            sums[name] = delta
        else:
            flaw = flaw_of_name(name)
            reason = f"the name {flaw}" if flaw else f"the delta {flaw_of_delta(delta) or allowed.flaw_of(delta)}"
            parsed.reject(counter=name[:LONGEST_TOLD], reason=reason)
    parsed.batch.increments = len(sums)
    return parsed


def _items(items: list[Any], allowed: Deltas) -> Parsed:
    """Read items one by one. A name is checked once, and a valid item costs a few dictionary look-ups."""
    _too_many(len(items), MOST_IN_BATCH)
    parsed = Parsed()
    sums, counts = parsed.batch.sums, parsed.batch.counts
    least, most = allowed
    for index, item in enumerate(items):
        if type(item) is dict:
            name = item.get("counter")
            delta = item.get("delta", 1)
            if (
                len(item) == 1 + ("delta" in item)
                and type(name) is str
                and type(delta) is int
                and least <= delta <= most
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
        reason = _take(item, parsed.batch, allowed)
        if reason is not None:
            parsed.reject(index=index, reason=reason)
    parsed.batch.increments = len(items) - parsed.bad
    return parsed


def _take(item: Any, into: Batch, allowed: Deltas) -> str | None:
    """Add an item to the batch, or return what is wrong with it."""
    if isinstance(item, _Broken):
        return item.reason
    if type(item) is not dict:
        return "must be an object with 'counter'"
    if found := flaw_of_fields(item, FIELDS, ("counter",)):
        return found[1]
    name, delta, client_id = item["counter"], item.get("delta", 1), item.get("id")
    if flaw := allowed.flaw_of(delta):
        return f"with this key, 'delta' {flaw}"
    if client_id is not None:
        into.keyed.append(Increment(name, delta, client_id))
        return None
    if added(name, delta, into.sums, into.counts):
        return None
    return (
        f"the deltas of a counter in one batch may add up to ±{MAX_SUM} at most: send this increment in another batch"
    )


# Reads batches as most clients send them: by schema, and checked as a whole, since a loop over the items would take
# longer than reading the JSON. All other batches are left to `batch`, which can say what is wrong with them.


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
"""What reads an array, what reads lines, and the strings of an item, by whether items have a delta, and an id."""
_MAP: Final = Decoder(_Map)
_SAMPLE: Final = 128
"""This many items show whether many of a batch are alike."""


def plain_batch(text: bytes, most: int) -> Batch | None:
    """The batch in an array or in lines of up to `most` items that have the same fields, or in a map. None if it is
    anything else.
    """
    if not is_plain(text):
        return None
    first = text[: text.find(b"}") + 1]
    try:
        if first.startswith(b"{") and b'"counters"' in first:
            found = _plain_map(text)
        else:
            found = _plain_items(text, b'"delta"' in first, b'"id"' in first)
    except DecodeError:
        return None
    if not 0 < found.increments <= most:
        return None
    names = found.sums.keys() or {item.counter for item in found.keyed}
    return found if names.isdisjoint(RESERVED) else None


def _plain_map(text: bytes) -> Batch:
    sums = _MAP.decode(text).counters
    _check_strings(text, 1 + len(sums))
    return Batch(sums, {}, [], len(sums))


def _plain_items(text: bytes, delta: bool, once: bool) -> Batch:
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
    """How often each text of an item appears, if many are alike: then it is read once. The last brace of an item in an
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
