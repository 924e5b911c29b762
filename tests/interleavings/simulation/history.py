"""What clients tried, what was answered, what readers saw; and what must hold of it.

Each increment of a counter has a power of four as its delta, so that a total says which increments it holds, and of
which set it is: see `tests.interleavings.steps.changes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.counters.series import Series
from shared.model.buckets import begin_of
from shared.model.words import Reading
from tests.interleavings.steps.changes import MOST, Epoch, counted, split


@dataclass
class _Counter:
    count: int = 0
    answered: int = 0
    published: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    sets: int = 0
    epoch: int = 0
    """That of the last set that was answered 200, or that some exact reading has shown."""


class History:
    """Of one run. Increments are bits of masks."""

    def __init__(self, *, exactly: bool, always: bool = True) -> None:
        """`exactly`: readers see an increment of theirs that was not answered when they do, each in its own time.
        `always`: every reading is exact. Otherwise one that is not promises nothing.
        """
        self._each = exactly
        self._always = always
        self.exact = self.inexact = 0
        """Readings."""
        self._counters: dict[str, _Counter] = {}
        self._final: dict[str, tuple[int, dict[int, int]]] = {}
        """Of each counter: until when an exact series had periods that were over, and their points."""

    def room(self, counter: str) -> bool:
        return self._of(counter).count < MOST

    def tries(self, counter: str) -> int:
        """Bit of a new increment."""
        its = self._of(counter)
        its.count += 1
        return 1 << (its.count - 1)

    def sets(self, counter: str) -> int:
        """The number of a new set."""
        its = self._of(counter)
        its.sets += 1
        return its.sets

    def was_set(self, counter: str, epochs: list[Epoch], now: int, before: tuple[int, int, int]) -> None:
        """By a set that was answered: it began the epoch `now`, and was asked for first when it was `before`."""
        answered, _, epoch = before
        assert now > epoch, f"{counter}: a set before one that had been answered earlier"
        missing = answered & ~epochs[now].found
        assert missing == 0, f"{counter}: answered 202 before a set, and not found by it: {missing:b}"
        its = self._of(counter)
        its.epoch = max(its.epoch, now)

    @staticmethod
    def delta(bit: int) -> int:
        return bit * bit

    def answered(self, counter: str, bit: int) -> None:
        self._of(counter).answered |= bit

    def published(self, counter: str, bit: int) -> None:
        """By others: it has to be there when all is applied."""
        self._of(counter).published |= bit

    def all_is_applied(self) -> None:
        for its in self._counters.values():
            its.answered |= its.published

    def judges(self, readings: Sequence[Reading]) -> bool:
        """Whether these promise anything."""
        exact = all(reading.exact for reading in readings)
        assert exact or not self._always
        self.exact += len(readings) * exact
        self.inexact += len(readings) * (not exact)
        return exact

    def epoch(self, counter: str) -> int:
        """Of the last set that a reading must show."""
        return self._of(counter).epoch

    def before(self, counter: str, reader: str) -> tuple[int, int, int]:
        """What a read that begins now must show."""
        its = self._of(counter)
        return its.answered, its.seen.get(reader if self._each else "", 0), its.epoch

    def read(
        self,
        reading: Reading,
        reader: str,
        before: tuple[int, int, int],
        epochs: list[Epoch],
        *,
        at_rest: bool = False,
    ) -> None:
        """Exact: all answered before it began, none twice, nothing that was never tried, nothing unseen again: no
        set that any reader has seen, no increment that this one has seen.
        """
        its = self._of(reading.name)
        answered, seen, epoch = before
        assert reading.exact
        assert reading.value == reading.applied + reading.pending
        assert not (at_rest and reading.pending), f"{reading.name}: pending for ever: {split(reading.pending)[1]:b}"
        tried = (1 << its.count) - 1
        try:
            first = len(epochs) - 1 if at_rest else epoch
            shown = counted(reading.value, epochs[first:], answered=answered, seen=seen, tried=tried)
        except AssertionError as error:
            raise AssertionError(f"{reading.name}: {error}") from None
        its.epoch = max(its.epoch, first + shown.sets)
        key = reader if self._each else ""
        its.seen[key] = its.seen.get(key, 0) | shown.increments

    def read_series(self, series: Series, answered: int) -> None:
        """Sets change totals alone, so the points have every increment. Those of periods that are over are final."""
        name = series.range.counter
        over = begin_of(series.range.by, int(series.as_of * 1_000))
        until, final = self._final.get(name, (0, {}))
        for points, other in ((series.points, final), (final, series.points)):
            for when in points:
                if when < min(until, over):
                    assert points[when] == other.get(when), f"{name}: {when} was final: {final}, now {series.points}"
        if over > until:
            self._final[name] = over, {when: count for when, count in series.points.items() if when < over}
        tried = (1 << self._of(name).count) - 1
        try:
            counted(sum(series.points.values()), [Epoch(0, 0)], answered=answered, seen=0, tried=tried)
        except AssertionError as error:
            raise AssertionError(f"the points of {name}: {error}") from None

    def _of(self, counter: str) -> _Counter:
        return self._counters.setdefault(counter, _Counter())
