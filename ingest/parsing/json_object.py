"""Checks a JSON object that a client sends: its fields, and the value of each. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.wire import strict_json

Flaw = Callable[[Any], str | None]
"""Says why a value is not allowed, as the end of a sentence about it; None if it is allowed."""


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
            if not self.required and not body.strip(strict_json.SPACE):
                return {}
            raise BodyError(400, f"the body is {error}") from None
        if type(data) is not dict:
            raise BodyError(400, f"the body must be {self.like}")
        return self.check(data)

    def check(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return these fields, or raise `BodyError` if one is wrong."""
        if found := self.flaw_of(data):
            field, flaw = found
            raise BodyError(422, flaw, field)
        return data

    def flaw_of(self, data: dict[str, Any]) -> tuple[str, str] | None:
        """The first field that is wrong, and what is wrong with it."""
        for name, value in data.items():
            flaw_of_value = self.fields.get(name)
            if flaw_of_value is None:
                known = ", ".join(map(repr, self.fields)) or "none"
                return name, f"unknown field {name[:100]!r}; known fields: {known}"
            if flaw := flaw_of_value(value):
                return name, f"'{name}' {flaw}"
        for name in self.required:
            if name not in data:
                return name, f"'{name}' is missing"
        return None


def or_null(flaw_of: Flaw) -> Flaw:
    """Allows null, too."""
    return lambda value: None if value is None else flaw_of(value)


def flaw_of_flag(value: object) -> str | None:
    return None if type(value) is bool else "must be true or false"
