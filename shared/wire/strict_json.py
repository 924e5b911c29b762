"""Reads JSON strictly: UTF-8, no NaN, no name twice in one object; and finds the field of an object that is wrong."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import orjson

SPACE: Final = b" \t\r\n"
"""What JSON calls white space. Python's idea of it is larger."""


Flaw = Callable[[Any], str | None]
"""Says why a value is not allowed, as the end of a sentence about it; None if it is allowed."""


class JsonError(ValueError):
    """The text is not acceptable JSON; the message says why."""


def loads(text: bytes) -> Any:
    """The value of the text. Raises `JsonError`. Integers beyond 64 bits become floats."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        line = f"line {error.lineno}, " if b"\n" in text else ""
        raise JsonError(f"not valid JSON: {error.msg}, at {line}column {error.colno}") from None
    if not _surely_unique(text, value):
        _refuse_repeated_names(text)
    return value


def is_json(text: bytes) -> bool:
    """Whether it is one JSON text, even if a name appears twice in an object."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _surely_unique(text: bytes, value: Any) -> bool:
    """Cheap and one-sided: each member of an object has a colon of its own, so as many colons as members that
    survived parsing, and in strings, means that none was dropped. False means: look closely.
    """
    if type(value) not in {dict, list}:
        return True
    rows = [value] if type(value) is dict else value
    if b"\\" in text or any(type(row) is not dict for row in rows):
        return False
    colons = text.count(b":") - sum(map(len, rows))
    return colons == 0 or colons == sum(map(_colons_inside, rows))


def _colons_inside(row: dict[str, Any]) -> int:
    """The colons in the names and strings of an object, and of the members of an object in it."""
    colons = 0
    for name, item in row.items():
        colons += name.count(":")
        if type(item) is str:
            colons += item.count(":")
        elif type(item) is dict:
            colons += len(item) + "".join(item).count(":")
    return colons


def _refuse_repeated_names(text: bytes) -> None:
    def check(pairs: list[tuple[str, Any]]) -> None:
        """Nobody needs the objects: keeping them would take several times as long."""
        if len({name for name, _ in pairs}) < len(pairs):
            names = sorted(name for name, _ in pairs)
            twice = next(name for name, after in pairwise(names) if name == after)
            raise JsonError(f"JSON with the name {twice[:100]!r} twice in one object")

    try:
        # Numbers are not looked at here, and the longest of them would be refused for its length alone.
        json.loads(text, object_pairs_hook=check, parse_int=len, parse_float=len)
    except RecursionError:
        raise JsonError("nested too deeply") from None


def flaw_of_fields(
    data: Mapping[str, Any], fields: Mapping[str, Flaw], required: Sequence[str] = (), *, others: bool = False
) -> tuple[str, str] | None:
    """The first field of an object that is wrong, and what is wrong with it. `others`: it may have other fields."""
    for name, value in data.items():
        flaw_of_value = fields.get(name)
        if flaw_of_value is not None:
            if flaw := flaw_of_value(value):
                return name, f"'{name}' {flaw}"
        elif not others:
            known = ", ".join(map(repr, fields)) or "none"
            return name, f"unknown field {name[:100]!r}; known fields: {known}"
    for name in required:
        if name not in data:
            return name, f"'{name}' is missing"
    return None


def or_null(flaw_of: Flaw) -> Flaw:
    return lambda value: None if value is None else flaw_of(value)
