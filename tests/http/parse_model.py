"""What a request body means, said slowly and plainly with the standard library: the oracle of tests/http/fuzz."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

BIG: Final = 2**53 - 1


class BadError(Exception):
    """Nothing of it may count."""


@dataclass
class Meaning:
    """Sums of the increments without an id, those with one in order, and which items are bad."""

    sums: Counter[str] = field(default_factory=Counter)
    keyed: list[tuple[str, int, str]] = field(default_factory=list)
    bad: list[Any] = field(default_factory=list)
    good: int = 0


def load(text: bytes) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise BadError("twice")
        return dict(pairs)

    def refuse(_: str) -> Any:
        raise BadError("NaN or infinite")

    def number(digits: str) -> float:
        value = float(digits)
        if value in {float("inf"), float("-inf")}:
            raise BadError("infinite")
        return value

    def integer(digits: str) -> int | float:
        return int(digits) if len(digits) < 20 else number(digits)

    try:
        decoded = text.decode("utf-8")
        if decoded.startswith("\ufeff"):
            raise BadError("a byte order mark")
        value = json.loads(
            decoded, object_pairs_hook=unique, parse_constant=refuse, parse_int=integer, parse_float=number
        )
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogates
    except (ValueError, RecursionError) as error:
        raise BadError(str(error)) from error
    return value


def is_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 1 <= len(name.encode()) <= 400
        and not any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in name)
        and name not in {".", ".."}
        and not (len(name) >= 4 and name[:2] == "__" == name[-2:])
    )


def is_delta(delta: Any) -> bool:
    return isinstance(delta, int) and not isinstance(delta, bool) and abs(delta) <= BIG


def is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str) and 1 <= len(value.encode()) <= 1_000)


def single(body: bytes) -> tuple[int, str | None]:
    if not body.strip(b" \t\r\n"):
        return 1, None
    data = load(body)
    if not isinstance(data, dict) or not data.keys() <= {"delta", "id"}:
        raise BadError("form")
    delta, client_id = data.get("delta", 1), data.get("id")
    if not is_delta(delta) or not is_id(client_id):
        raise BadError("value")
    return delta, client_id


def batch(body: bytes) -> Meaning:
    text = body.strip(b" \t\r\n")
    try:
        data = load(text)
    except BadError:
        # Lines, unless it began as an array, or is one document with a name twice.
        if b"\n" not in text or text.startswith(b"[") or _is_one_document(text):
            raise
        meaning = _items([_line(line) for line in text.split(b"\n") if line.strip(b" \t\r\n")])
    else:
        if isinstance(data, dict) and "counters" in data:
            meaning = _map(data)
        else:
            meaning = _items(data if isinstance(data, list) else [data])
    if not meaning.good:
        raise BadError("no good increment")
    return meaning


def _is_one_document(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _line(line: bytes) -> Any:
    try:
        return load(line)
    except BadError:
        return None


def _map(data: dict[str, Any]) -> Meaning:
    if len(data) > 1 or not isinstance(data["counters"], dict):
        raise BadError("form")
    meaning = Meaning()
    for name, delta in data["counters"].items():
        if is_name(name) and is_delta(delta):
            meaning.sums[name] += delta
            meaning.good += 1
        else:
            meaning.bad.append(name)
    return meaning


def _items(items: list[Any]) -> Meaning:
    meaning = Meaning()
    for index, item in enumerate(items):
        fields = item if isinstance(item, dict) else {}
        name: Any
        name, delta, client_id = fields.get("counter"), fields.get("delta", 1), fields.get("id")
        known = fields.keys() <= {"counter", "delta", "id"}
        if not (known and is_name(name) and is_delta(delta) and is_id(client_id)):
            meaning.bad.append(index)
            continue
        meaning.good += 1
        if client_id is None:
            meaning.sums[name] += delta
        else:
            meaning.keyed.append((name, delta, client_id))
    return meaning
