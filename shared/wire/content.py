"""Reads what the data of a message counts, in each form that a publisher may send. Pure.

It agrees with how `ingest.parsing.parse` reads a request, with the differences that docs/messages.md lists.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from shared.model.errors import UnreadableError
from shared.model.words import MAX_SUM, Increment, Message, flaw_of_delta, flaw_of_id, flaw_of_name
from shared.wire import strict_json

MAX_ITEMS: Final = 100_000
"""Most increments in one request, and in the array or the lines of one message."""
_FIELDS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "counter": flaw_of_name,
    "delta": flaw_of_delta,
    "id": lambda value: None if value is None else flaw_of_id(value),
}
_LONGEST_TOLD: Final = 100
"""Characters of a bad name that a reason repeats."""


class Content(NamedTuple):
    """Sums of the increments without ids, how many these are where it is not 1, and the increments with ids."""

    sums: dict[str, int]
    counts: dict[str, int]
    keyed: tuple[Increment, ...]
    ends: tuple[int, ...] = ()
    """The least and the largest of the deltas that were summed, if there are any."""


def of_others(message: Message) -> Content:
    """The content of another publisher's message. `UnreadableError` if any increment in it is not valid: nobody could
    be told which were counted, so a publisher could not send the others again.
    """
    if not message.data.strip():
        return of_object(_of_attributes(message.attributes))
    text = message.data.strip(strict_json.SPACE)
    try:
        data = strict_json.loads(text)
    except strict_json.JsonError as error:
        if text.startswith(b"[") or b"\n" not in text or strict_json.is_json(text):
            raise UnreadableError(f"the data is {error}") from None
        _too_many(text.count(b"\n"))
        return _of_items([line for line in text.split(b"\n") if line.strip(strict_json.SPACE)], _of_line)
    return of_value(data)


def of_value(data: Any) -> Content:
    """The content of data that has been parsed from JSON, as `of_others` reads it."""
    if type(data) is dict:
        return of_object(data)
    if type(data) is list:
        return _of_items(data, _increment)
    raise UnreadableError('the data must be an array of increments, NDJSON of them, or {"counters": {…}}')


def object_of(message: Message) -> dict[str, Any]:
    """The object that the data of our own message must be."""
    try:
        data = strict_json.loads(message.data)
    except strict_json.JsonError as error:
        raise UnreadableError(f"the data is {error}") from None
    if type(data) is not dict:
        raise UnreadableError("the data must be a JSON object")
    return data


def of_object(data: dict[str, Any], max_sum: int | None = None) -> Content:
    """The content of an object: one increment, or 'counters' and 'keyed'. `max_sum`: deltas in 'counters' are sums, and
    may be as large as this.
    """
    if "counters" not in data and "keyed" not in data:
        item = _increment(data)
        return Content({item.counter: item.delta}, {}, ()) if item.id is None else Content({}, {}, (item,))
    if "counter" in data:
        raise UnreadableError("'counter' can't stand beside 'counters' or 'keyed'")
    sums = data.get("counters", {})
    keyed = data.get("keyed", [])
    if type(sums) is not dict:
        raise UnreadableError("'counters' must be an object of names and deltas")
    if type(keyed) is not list:
        raise UnreadableError("'keyed' must be an array of increments")
    for name, delta in sums.items():
        flaw = flaw_of_delta(delta) if max_sum is None else _flaw_of_sum(delta, max_sum)
        reason = f"the name {bad}" if (bad := flaw_of_name(name)) else flaw and f"the delta {flaw}"
        if reason:
            raise UnreadableError(f"counter {name[:_LONGEST_TOLD]!r}: {reason}")
    items = tuple([_increment(item, f"'keyed' item {index}: ") for index, item in enumerate(keyed)])
    if any(item.id is None for item in items):
        raise UnreadableError("each item of 'keyed' needs an 'id'")
    return Content(sums, {}, items)


def _of_attributes(attributes: Mapping[str, str]) -> dict[str, Any]:
    if "counter" not in attributes:
        raise UnreadableError("a message without data needs the attribute 'counter'")
    data: dict[str, Any] = {"counter": attributes["counter"]}
    if "delta" in attributes:
        try:
            data["delta"] = int(attributes["delta"])
        except ValueError:
            raise UnreadableError("the attribute 'delta' must be an integer") from None
    return data


def _of_items(items: Sequence[Any], read: Callable[[Any, str], Increment]) -> Content:
    _too_many(len(items))
    if not items:
        raise UnreadableError("the data holds no increments")
    return _summed([read(item, f"item {index}: ") for index, item in enumerate(items)])


def _too_many(count: int) -> None:
    if count > MAX_ITEMS:
        raise UnreadableError(f"more than {MAX_ITEMS} increments in one message: send several")


def _summed(items: Sequence[Increment]) -> Content:
    content, keyed = Content({}, {}, ()), []
    for index, item in enumerate(items):
        name, delta, client_id, _ = item
        if client_id is not None:
            keyed.append(item)
        elif name not in content.sums:
            content.sums[name] = delta
        else:
            content.sums[name] += delta
            content.counts[name] = content.counts.get(name, 1) + 1
            if abs(content.sums[name]) > MAX_SUM:
                flaw = f"the deltas of a counter in one message may add up to ±{MAX_SUM} at most"
                raise UnreadableError(f"item {index}: {flaw}: send this in another message")
    deltas = [item.delta for item in items]
    return content._replace(keyed=tuple(keyed), ends=(min(deltas), max(deltas)))


def _of_line(line: bytes, where: str) -> Increment:
    try:
        return _increment(strict_json.loads(line), where)
    except strict_json.JsonError as error:
        raise UnreadableError(f"{where}{error}") from None


def _increment(item: Any, where: str = "") -> Increment:
    """One increment. Fields that are not known are ignored, as nobody could be told, and other publishers have some."""
    if type(item) is not dict:
        raise UnreadableError(f"{where}must be an object with 'counter'")
    for name, value in item.items():
        flaw_of = _FIELDS.get(name)
        if flaw_of is not None and (flaw := flaw_of(value)):
            raise UnreadableError(f"{where}'{name}' {flaw}")
    if "counter" not in item:
        raise UnreadableError(f"{where}'counter' is missing")
    return Increment(item["counter"], item.get("delta", 1), item.get("id"))


def _flaw_of_sum(value: object, max_sum: int) -> str | None:
    if type(value) is not int:
        return "must be an integer"
    return None if -max_sum <= value <= max_sum else f"must be between -{max_sum} and {max_sum}"
