"""Reads settings that are one text, number or choice. Pure."""

from collections.abc import Callable
from functools import partial


def text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def bounded(of: Callable[[str], float], kind: str, form: str, least: float, most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            read_as = of(value)
        except ValueError:
            raise ValueError(f"must be {kind}") from None
        if not least <= read_as <= most:
            raise ValueError(f"must be from {least:{form}} to {most:{form}}")
        return read_as

    return read


whole = partial(bounded, int, "a whole number", "d")
number = partial(bounded, float, "a number", "g")


def choice(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        for one in choices:
            if value.lower() == one.lower():
                return one
        raise ValueError(f"must be {' or '.join(choices)}")

    return read
