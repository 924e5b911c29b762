"""Maps names to numbers in the same order, so that the space between two names can be divided evenly. Pure.

Python compares strings by code points, which is the order of their bytes in UTF-8, and so that of the stores.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

LAST: Final = 0x10FFFF
LARGE: Final = 0x3000
"""From this code point on, scripts have thousands of characters."""
FINE: Final = 100
"""A cut is made as short as possible while it is off by at most 1/FINE of a step."""
_MOST: Final = chr(LAST) * 101
"""Longer than any name: names have at most 400 bytes."""
_NEVER: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF))
"""Control characters, which names can't hold, and surrogates, which are not characters."""


def common(one: str, other: str) -> int:
    """The number of characters that both start with."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(place for place in range(most) if one[place] != other[place])


def character(code: int) -> str | None:
    """The first character from this code point on that names may hold; None behind the last one."""
    for low, high in _NEVER:
        if low <= code <= high:
            code = high + 1
    return chr(code) if code <= LAST else None


def behind(text: str) -> str | None:
    """The first name behind all names that start with the text; None if there is nothing behind them."""
    for end in range(len(text), 0, -1):
        following = character(ord(text[end - 1]) + 1)
        if following is not None:
            return text[: end - 1] + following
    return None


def last(prefix: str, until: str | None) -> str:
    """A bound: no name that starts with the prefix and is not behind `until` is behind it."""
    return prefix + _MOST if until is None else min(prefix + _MOST, until)


def runs(codes: Iterable[int], near: int = 1) -> list[tuple[int, int]]:
    """Runs of adjacent code points, as first and last. In large scripts a distance up to `near` counts as adjacent."""
    found: list[tuple[int, int]] = []
    for code in sorted({*codes}):
        if found and code - found[-1][1] <= (near if code >= LARGE else 1):
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


class Scale:
    """Reads strings as whole numbers of `width` digits. The digits are the characters of an alphabet, given as runs.

    The order is kept: a greater string is never a smaller number, whatever its characters. A string that ends early
    continues with the least character.
    """

    def __init__(self, alphabet: Sequence[tuple[int, int]], width: int) -> None:
        self._lows = [low for low, _ in alphabet]
        self._sizes = [0, *accumulate(high - low + 1 for low, high in alphabet)]
        self._base = max(self._sizes[-1], 1)
        self._width = width
        self.top = self._base**width
        """One more than the largest number."""

    def number(self, text: str) -> int:
        number = 0
        for place in range(self._width):
            digit, known = self._digit(ord(text[place])) if place < len(text) else (0, False)
            number = number * self._base + max(digit, 0)
            if not known:  # the first or last number with this beginning
                rest: int = self._base ** (self._width - place - 1)
                return number * rest + (rest - 1 if place < len(text) and digit >= 0 else 0)
        return number

    def _digit(self, code: int) -> tuple[int, bool]:
        """The digit of the character and True; if the alphabet lacks it, the digit before it (or -1) and False."""
        run = bisect_right(self._lows, code)
        if not run:
            return -1, False
        digit = self._sizes[run - 1] + code - self._lows[run - 1]
        return min(digit, self._sizes[run] - 1), digit < self._sizes[run]

    def text(self, number: int) -> str:
        """The shortest string with this number."""
        digits: list[str] = []
        for _ in range(self._width):
            number, digit = divmod(number, self._base)
            if digit or digits:
                digits.append(self._character(digit))
        return "".join(reversed(digits))

    def _character(self, digit: int) -> str:
        run = bisect_right(self._sizes, digit) - 1
        return character(self._lows[run] + digit - self._sizes[run]) or chr(LAST)

    def cuts(self, low: int, high: int, parts: int) -> list[str]:
        """Strings that divide `low` to `high` into `parts` nearly equal parts. Some may equal an end."""
        step = (high - low) // parts
        unit = 1
        while unit * self._base * FINE <= step:
            unit *= self._base
        numbers = [low + (high - low) * part // parts for part in range(1, parts)]
        return [self.text(number - number % unit) for number in numbers]
