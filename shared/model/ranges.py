"""Ranges of names, and how to split the rest of a range after its first page. Pure.

Nobody knows how many names a range has, or where they are. One rule estimates it: **a name is a number whose digits are
the characters in which the names of the page differ, and the rest of the range is as dense as its page.** So the rest
is cut into as many equal parts as it would have pages, at most `PARTS`.

For example, the first page has page:000000 to page:000099. All its names begin with page:0000, and then differ in
digits. The characters before that are digits, too, up to the colon. So names like these are page: and a number, and
the rest reaches from 99 to 999999. That is far more than 8 pages, so `split` cuts at page:125, page:25, page:375, ...,
page:875 and page::, the first name behind all numbers. The numbers may end early, as they do with leading zeros, so it
also cuts behind half of the leading digits. Behind page:: it knows nothing, and makes `FAR` cuts.

The rule is used twice. The page tells how its own names go on. Then its last name alone tells how the names go on that
differ earlier: there is one page from the beginning of the range to here.

An estimate may be wrong. Names are then in fewer or larger parts, which costs a few reads more: `split` itself makes
sure that the parts cover the rest of the range and don't overlap.

Python compares strings by code points, which is the order of their bytes in UTF-8, and so that of the stores.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from shared.model.words import flaw_of_name

PARTS: Final = 8
"""Parts of the names that are like the page. More parts mean fewer rounds, and more pages that are nearly empty."""
FULL: Final = 90
"""How full the pages of the parts should be, in per cent. Fuller pages are fewer, but more parts need a second one."""
FAR: Final = 2
"""Cuts behind the names that are like the page. Most of these parts are empty and cost a read each."""
SAMPLE: Final = 32
"""Names of a page that are examined."""
COLUMNS: Final = 2
"""Characters of each name that are examined, behind what all have in common."""
MORE: Final = 4
"""Digits behind the common beginning that are used to tell the density."""
ALIKE: Final = (frozenset("0123456789"), frozenset("abcdef"), frozenset("ABCDEF"))
"""If one character of a group occurs, all of the group are assumed."""
GAP: Final = 4
"""A sample lacks some characters of its script. Those between two others are assumed if they are so near: the distance
is at most the code point divided by this."""
FINE: Final = 100
"""A cut is made as short as possible while it is off by at most 1/FINE of a step."""
LAST: Final = 0x10FFFF
_NEVER: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF))
"""Control characters, which names can't hold, and surrogates, which are not characters."""


class Range(NamedTuple):
    """The names behind `after`, up to and including `until` (None: to the end). Adjacent ranges share no name."""

    after: str = ""
    until: str | None = None
    depth: int = 1
    """The number of pages that had to be read one after the other before this range's page."""


def split(prefix: str, done: Range, page: Sequence[str]) -> list[Range]:
    """The rest of the range behind its first page: parts in order. All names start with the prefix.

    The parts cover the rest and do not overlap. Each part can hold a name, if the range could: it ends with one.
    """
    last, until = page[-1], done.until
    if until is not None and last >= until:
        return []
    cuts = {
        cut
        for cut in _cuts(prefix, done, page)
        if last < cut and (until is None or cut < until) and cut.startswith(prefix) and flaw_of_name(cut) is None
    }
    begins = [last, *sorted(cuts)]
    return [Range(begin, end, done.depth + 1) for begin, end in zip(begins, [*begins[1:], until], strict=True)]


def _cuts(prefix: str, done: Range, page: Sequence[str]) -> Iterator[str]:
    """Possible cuts. Some may lie outside the range."""
    last, until = page[-1], done.until
    edge = last
    for seen in (page, (max(done.after, prefix), last)):
        fixed = len(prefix) if until is None else common(last, until)
        same = common(seen[0], last)
        digits = _characters([seen[number * (len(seen) - 1) // (SAMPLE - 1)] for number in range(SAMPLE)], same)
        stem = max(same, fixed)
        while stem > fixed and last[stem - 1] in digits:
            stem -= 1
        scale = Scale(sorted(digits), max(same - stem + MORE, 1))
        begin = bisect_left(seen, last[:stem])  # names before that are not like the rest
        low, high = scale.number(last[stem:]), scale.top
        if until is not None and stem == fixed:
            high = scale.number(until[stem:])
        if span := low - scale.number(seen[begin][stem:]):
            pages = 100 * (len(seen) - begin) * (high - low) // (span * len(seen) * FULL)
            yield from (last[:stem] + cut for cut in scale.cuts(low, high, min(pages + 1, PARTS)))
            if pages >= PARTS:  # the names may end much earlier, at an unknown distance
                yield behind(last[: (stem + same) // 2 + 1]) or ""
        beyond = behind(last[:stem] + max([last[stem : stem + 1], *digits]))
        if beyond is None or (until is not None and beyond >= until):
            return
        yield beyond
        edge = beyond
    yield from _far(edge, until, len(prefix))


def _characters(names: Sequence[str], same: int) -> set[str]:
    """The characters in which these names differ, behind what they have in common, and those that are like them."""
    there = {one for name in names for one in name[same : same + COLUMNS]}
    for low, high in pairwise(sorted(map(ord, there))):
        if high - low <= low // GAP:
            there |= {chr(code) for code in range(low, high) if character(code) == chr(code)}
    return there.union(*(group for group in ALIKE if not there.isdisjoint(group)))


def _far(edge: str, until: str | None, fixed: int) -> Iterator[str]:
    """Cuts by characters of all kinds; they are denser near the edge."""
    if until is not None:
        fixed = common(edge, until)
    near = ord(edge[fixed]) if fixed < len(edge) else 0
    gap = (LAST if until is None else ord(until[fixed])) - near
    steps = [near + (gap >> bits) for bits in range(gap.bit_length())] + [near + gap * step // 16 for step in range(16)]
    scale = Scale(sorted({character(code) or chr(LAST) for code in (*range(0x20, 0x7F), *steps)}), 2)
    high = scale.top if until is None else scale.number(until[fixed:])
    for cut in scale.cuts(scale.number(edge[fixed:]), high, FAR + 1):
        yield edge[:fixed] + cut


class Scale:
    """Reads strings as whole numbers of `width` digits, which are these characters.

    The order is kept: a greater string is never a smaller number, whatever its characters. A string that ends early
    continues with the least character.
    """

    def __init__(self, digits: Sequence[str], width: int) -> None:
        self._digits = digits or " "
        self._width = width
        self.top = len(self._digits) ** width
        """One more than the largest number."""

    def number(self, text: str) -> int:
        number, base = 0, len(self._digits)
        for place in range(self._width):
            one = text[place : place + 1]
            digit = bisect_right(self._digits, one) - 1
            number = number * base + max(digit, 0)
            if one and (digit < 0 or self._digits[digit] != one):  # the first or last number with this beginning
                rest: int = base ** (self._width - place - 1)
                return number * rest + (rest - 1 if digit >= 0 else 0)
        return number

    def text(self, number: int) -> str:
        """The shortest string with this number."""
        text = ""
        for _ in range(self._width):
            number, digit = divmod(number, len(self._digits))
            if digit or text:
                text = self._digits[digit] + text
        return text

    def cuts(self, low: int, high: int, parts: int) -> list[str]:
        """Strings that divide `low` to `high` into `parts` nearly equal parts. Some may equal an end."""
        unit = 1
        while len(self._digits) > 1 and unit * len(self._digits) * FINE <= (high - low) // parts:
            unit *= len(self._digits)
        numbers = [low + (high - low) * part // parts for part in range(1, parts)]
        return [self.text(number - number % unit) for number in numbers]


def common(one: str, other: str) -> int:
    """The number of characters that both start with."""
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)


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
