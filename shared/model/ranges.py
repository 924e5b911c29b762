"""Ranges of names, and how the rest of one is split when a page of it has been seen. Pure.

Nobody knows how many names there are, or where. A page tells what is near: by which characters names differ, how dense
they are, and what all of them begin with. So the rest is cut evenly as far as names like those of the page may go; and
coarsely behind that, at several distances, for what may be there.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from math import isqrt
from typing import Final, NamedTuple

from shared.model.scale import LAST, Scale, behind, common, runs
from shared.model.words import flaw_of_name

PARTS: Final = 8
"""Of what is like the page, if that is many pages. More is fewer rounds, and more pages that are nearly empty."""
LAST_PARTS: Final = 16
"""Up to so many, if each of them is one page. Just 8 might be of a little more than one."""
FULL: Final = 90
"""Per cent of the last pages. Fuller ones are fewer, until too many parts have a few names more than a page."""
FAR: Final = 2
"""Cuts behind what is like the page. Most of such parts are empty, and each costs a read; fewer are more rounds."""
SAMPLE: Final = 16
"""Names of a page that are looked at."""
MORE: Final = 4
"""Characters beyond those that all have in common, to tell how dense they are."""
NEAR: Final = 0x1000
"""In large scripts a sample has few of the characters: those between are taken to be there, too."""
ALIKE: Final = (frozenset(b"0123456789"), frozenset(b"abcdef"), frozenset(b"ABCDEF"))
"""Where there is one of them there are all."""
PRINTABLE: Final = range(0x20, 0x7F)


class Range(NamedTuple):
    """Names behind `after`, up to `until` and with it; without one, to the end. Half-open: parts share no name."""

    after: str = ""
    until: str | None = None
    depth: int = 1
    """How many pages had to be seen, one after another, up to the one of this range."""


def split(prefix: str, done: Range, page: Sequence[str]) -> list[Range]:
    """What is left of the range behind a page of it: parts, in order. All names begin with the prefix.

    They cover it and overlap nowhere. Each has room for a name, if the range itself had: it ends with one.
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
    """Where it might be cut. Not each of these is inside."""
    last, until = page[-1], done.until
    fixed = len(prefix) if until is None else common(last, until)
    edge = last
    # The page tells how its own names go on; and that there is one page from where the range begins to here, how those
    # go on that are less like it.
    for seen, columns in ((page, 2), ((max(done.after, prefix), last), 1)):
        heap = Heap(seen, fixed, columns)
        yield from heap.cuts(until)
        edge = max(edge, heap.edge or last)
        if heap.edge is None or (until is not None and edge >= until):
            return
        yield edge
    yield behind(last[: (fixed + len(heap.stem)) // 2 + 1]) or ""
    yield from _far(edge, until, len(prefix))


class Heap:
    """Names like those that were seen: they begin with the stem, and go on with characters of the alphabet."""

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
        # No further than they go on with it: what comes then is another thing.
        grain = max(len([*takewhile(self._holds, name[stem:])]) for name in sample)
        self._width = max(min(self._same - stem + MORE, grain), self._same - stem + 1, 1)
        greatest = max(last[stem : stem + 1], chr(self._alphabet[-1][1] if self._alphabet else 0))
        self.edge = behind(self.stem + greatest)
        """Behind all of them, if anything is."""

    def _holds(self, one: str) -> bool:
        return any(low <= ord(one) <= high for low, high in self._alphabet)

    def cuts(self, until: str | None) -> Iterator[str]:
        """Into as many parts as there are pages, if the rest is as dense as what was seen."""
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
        if pages >= LAST_PARTS:  # they may end long before, nobody knows at what distance
            cuts += scale.cuts(low, low + 2 * isqrt((high - low) * span), 2)
        for cut in cuts:
            yield self.stem + cut


def _far(edge: str, until: str | None, least: int) -> Iterator[str]:
    """By characters of all sorts, the nearer the denser."""
    fixed = least if until is None else common(edge, until)
    near = ord(edge[fixed]) if fixed < len(edge) else 0
    gap = (LAST if until is None else ord(until[fixed])) - near
    steps = [near + (gap >> bits) for bits in range(gap.bit_length())] + [near + gap * step // 16 for step in range(16)]
    scale = Scale(runs((*PRINTABLE, *steps)), len(edge) - fixed + 2)
    high = scale.top if until is None else scale.number(until[fixed:])
    for cut in scale.cuts(scale.number(edge[fixed:]), high, FAR + 1):
        yield edge[:fixed] + cut


def _alphabet(names: Sequence[str], columns: int) -> set[int]:
    """The characters by which these names differ, in so many places behind the last that tells two apart."""
    deepest = max((common(*pair) for pair in pairwise(names)), default=0)
    places = [{name[place : place + 1] for name in names} for place in range(deepest + columns)]
    varied = {ord(one) for place in places if len(place) > 1 for one in place if one}
    for like in ALIKE:
        if not varied.isdisjoint(like):
            varied |= like
    return varied
