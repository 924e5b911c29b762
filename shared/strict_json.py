"""JSON as we accept it: UTF-8, no NaN, and no name twice in one object."""

import json
from typing import Any

import orjson


class JsonError(ValueError):
    """The text is not JSON as we accept it; the message says why."""


def loads(text: bytes) -> Any:
    """The value, or `JsonError`. Integers beyond 64 bits come out as floats."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error}") from None
    if not _surely_unique(text, value):
        _refuse_repeated_names(text)
    return value


def _surely_unique(text: bytes, value: Any) -> bool:
    """Cheap and one-sided: each member of an object has a colon of its own, so as many colons as members that
    survived parsing, and in strings, means that none was dropped. False means: look closely.
    """
    if type(value) is dict:
        rows = [value]
    elif type(value) is list:
        rows = value
    else:
        return True
    members = 0
    for row in rows:
        if type(row) is not dict:
            return False
        members += len(row)
    if b"\\" in text:
        return False
    colons = text.count(b":")
    if colons == members:
        return True
    in_strings = 0
    for row in rows:
        for name, item in row.items():
            in_strings += name.count(":")
            if type(item) is str:
                in_strings += item.count(":")
            elif type(item) is dict:
                in_strings += len(item) + "".join(item).count(":")
    return colons == members + in_strings


def _refuse_repeated_names(text: bytes) -> None:
    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))
            raise JsonError(f"the name {twice[:100]!r} stands twice in one object")
        return members

    try:
        # Numbers are not looked at here, and the longest of them would be refused for its length alone.
        json.loads(text, object_pairs_hook=check, parse_int=len, parse_float=len)
    except RecursionError:
        raise JsonError("nested too deeply") from None
