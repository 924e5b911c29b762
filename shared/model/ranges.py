"""Ranges of names, and how to split the rest of a range after its first page. Pure.

The number and the places of the names are unknown. A page shows what is near: the characters in which names differ,
their density, and their common beginning. So the rest is cut evenly as far as similar names may reach, and coarsely
behind that, at several distances.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from math import isqrt
from typing import Final, NamedTuple

from shared.model.names_as_numbers import LAST, Scale, behind, common, runs
from shared.model.words import flaw_of_name

PARTS: Final = 8
"""Parts of the names that are like the page, if they are many pages. More parts mean fewer rounds, and more pages
that are nearly empty."""
LAST_PARTS: Final = 16
"""Parts at most if each of them is about one page. With 8, each might be slightly more than a page."""
FULL: Final = 90
"""How full the last pages should be, in per cent. Fuller pages are fewer, but more parts need a second page."""
FAR: Final = 2
"""Cuts behind the names that are like the page. Most of these parts are empty and cost a read each; fewer cuts mean
more rounds."""
SAMPLE: Final = 16
"""Names of a page that are examined."""
MORE: Final = 4
"""Characters behind the common beginning that are used to tell the density."""
NEAR: Final = 0x1000
"""In large scripts a sample has few of the characters. Those in between, up to this distance, are assumed too."""
ALIKE: Final = (frozenset(b"0123456789"), frozenset(b"abcdef"), frozenset(b"ABCDEF"))
"""If one character of a group occurs, all of the group are assumed."""
PRINTABLE: Final = range(0x20, 0x7F)


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
    fixed = len(prefix) if until is None else common(last, until)
    edge = last
    # The page tells how its own names go on; and that there is one page from where the range begins to here, how those
    # go on that are less like it.
    for seen, columns in ((page, 2), ((max(done.after, prefix), last), 1)):
        similar = SimilarNames(seen, fixed, columns)
        yield from similar.cuts(until)
        edge = max(edge, similar.edge or last)
        if similar.edge is None or (until is not None and edge >= until):
            return
        yield edge
    yield behind(last[: (fixed + len(similar.stem)) // 2 + 1]) or ""
    yield from _far(edge, until, len(prefix))


class SimilarNames:
    """Names like those of the page: they start with the stem and continue with characters of the alphabet."""

    def __init__(self, seen: Sequence[str], fixed: int, columns: int) -> None:
        self._seen = seen
        self._fixed = fixed
        self._same = common(seen[0], seen[-1])
        sample = sorted({seen[number * (len(seen) - 1) // (SAMPLE - 1)] for number in range(SAMPLE)})
        self._alphabet = runs(_alphabet([name[self._same :] for name in sample], columns), NEAR)
        last = seen[-1]
        places = range(self._same - 1, fixed - 1, -1)
        stem = next((place + 1 for place in places if not self._holds(last[place])), fixed)
        self.stem = last[:stem]
        # Only as many characters as continue in the alphabet: what follows is something else.
        grain = max(len([*takewhile(self._holds, name[stem:])]) for name in sample)
        self._width = max(min(self._same - stem + MORE, grain), self._same - stem + 1, 1)
        greatest = max(last[stem : stem + 1], chr(self._alphabet[-1][1] if self._alphabet else 0))
        self.edge = behind(self.stem + greatest)
        """The first name behind all of them; None if there is none."""

    def _holds(self, one: str) -> bool:
        return any(low <= ord(one) <= high for low, high in self._alphabet)

    def cuts(self, until: str | None) -> Iterator[str]:
        """Cuts into as many parts as there are pages, if the rest is as dense as the page."""
        seen, stem = self._seen, len(self.stem)
        begin = bisect_left(seen, self.stem) if self._same < stem else 0
        scale = Scale(self._alphabet, self._width)
        low, high = scale.number(seen[-1][stem:]), scale.top
        if until is not None and stem == self._fixed:
            high = scale.number(until[stem:])
        span = low - scale.number(seen[begin][stem:])
        if span <= 0 or high <= low:
            return
        pages = 100 * (len(seen) - begin) * (high - low) // (span * len(seen) * FULL)
        cuts = scale.cuts(low, high, pages + 1 if pages < LAST_PARTS else PARTS)
        if pages >= LAST_PARTS:  # the names may end much earlier, at an unknown distance
            cuts += scale.cuts(low, low + 2 * isqrt((high - low) * span), 2)
        for cut in cuts:
            yield self.stem + cut


def _far(edge: str, until: str | None, least: int) -> Iterator[str]:
    """Cuts by characters of all kinds; they are denser near the page."""
    fixed = least if until is None else common(edge, until)
    near = ord(edge[fixed]) if fixed < len(edge) else 0
    gap = (LAST if until is None else ord(until[fixed])) - near
    steps = [near + (gap >> bits) for bits in range(gap.bit_length())] + [near + gap * step // 16 for step in range(16)]
    scale = Scale(runs((*PRINTABLE, *steps)), len(edge) - fixed + 2)
    high = scale.top if until is None else scale.number(until[fixed:])
    for cut in scale.cuts(scale.number(edge[fixed:]), high, FAR + 1):
        yield edge[:fixed] + cut


def _alphabet(names: Sequence[str], columns: int) -> set[int]:
    """The characters in which these names differ, up to `columns` places behind the last one that tells two apart."""
    deepest = max((common(*pair) for pair in pairwise(names)), default=0)
    places = [{name[place : place + 1] for name in names} for place in range(deepest + columns)]
    varied = {ord(one) for place in places if len(place) > 1 for one in place if one}
    for like in ALIKE:
        if not varied.isdisjoint(like):
            varied |= like
    return varied
