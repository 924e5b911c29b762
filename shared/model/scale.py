"""Names in their order, as numbers: so that what lies between two of them can be cut evenly. Pure.

Python compares strings by code points, which is the order of their bytes in UTF-8, and so that of the stores.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

LAST: Final = 0x10FFFF
LARGE: Final = 0x3000
"""From here on scripts have thousands of characters."""
FINE: Final = 100
"""A cut is as short as it can be while it is off by no more than this part of a step."""
_MOST: Final = chr(LAST) * 101
"""More than the 400 bytes of a name."""
_NEVER: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF))
"""Controls, which no name has, and surrogates, which are no characters."""


def common(one: str, other: str) -> int:
    """How many characters both begin with."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(place for place in range(most) if one[place] != other[place])


def character(code: int) -> str | None:
    """The first that may stand in a name, from this code point on; none if it is behind the last."""
    for low, high in _NEVER:
        if low <= code <= high:
            code = high + 1
    return chr(code) if code <= LAST else None


def behind(text: str) -> str | None:
    """The first name behind all that begin with the text; none if nothing is behind them."""
    for end in range(len(text), 0, -1):
        following = character(ord(text[end - 1]) + 1)
        if following is not None:
            return text[: end - 1] + following
    return None


def last(prefix: str, until: str | None) -> str:
    """No name that begins so, and does not come after `until`, comes after this."""
    return prefix + _MOST if until is None else min(prefix + _MOST, until)


def runs(codes: Iterable[int], near: int = 1) -> list[tuple[int, int]]:
    """First and last of the code points that lie side by side; in large scripts, of those that are so near."""
    found: list[tuple[int, int]] = []
    for code in sorted({*codes}):
        if found and code - found[-1][1] <= (near if code >= LARGE else 1):
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


class Scale:
    """Strings as whole numbers of `width` digits, which are the characters of an alphabet, given as runs.

    Order is kept: a greater string is no smaller number, whatever characters it is made of. One that ends early goes on
    with the least character.
    """

    def __init__(self, alphabet: Sequence[tuple[int, int]], width: int) -> None:
        self._lows = [low for low, _ in alphabet]
        self._sizes = [0, *accumulate(high - low + 1 for low, high in alphabet)]
        self._base = max(self._sizes[-1], 1)
        self._width = width
        self.top = self._base**width
        """Behind all numbers."""

    def number(self, text: str) -> int:
        number = 0
        for place in range(self._width):
            digit, known = self._digit(ord(text[place])) if place < len(text) else (0, False)
            number = number * self._base + max(digit, 0)
            if not known:  # the first or the last of what begins so
                rest: int = self._base ** (self._width - place - 1)
                return number * rest + (rest - 1 if place < len(text) and digit >= 0 else 0)
        return number

    def _digit(self, code: int) -> tuple[int, bool]:
        """Of this character or, if it is not in the alphabet, of the one before it; -1 if there is none."""
        run = bisect_right(self._lows, code)
        if not run:
            return -1, False
        digit = self._sizes[run - 1] + code - self._lows[run - 1]
        return min(digit, self._sizes[run] - 1), digit < self._sizes[run]

    def text(self, number: int) -> str:
        """The shortest of this number."""
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
        """Places that divide what is from `low` to `high` into so many about equal parts. Some may be an end itself."""
        step = (high - low) // parts
        unit = 1
        while unit * self._base * FINE <= step:
            unit *= self._base
        numbers = [low + (high - low) * part // parts for part in range(1, parts)]
        return [self.text(number - number % unit) for number in numbers]
