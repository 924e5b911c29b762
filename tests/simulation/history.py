"""What clients tried, what was answered, what readers saw; and what must hold of it.

Each increment of a counter has a power of four as its delta: the digits of a total say which increments it holds, and
one of 2 that an increment was counted twice.
"""

from dataclasses import dataclass, field

from shared.words import Reading

MOST = 26
"""Powers of four below 2^53."""


@dataclass
class _Counter:
    count: int = 0
    answered: int = 0
    published: int = 0
    seen: dict[str, int] = field(default_factory=dict)


class History:
    """Of one run. Increments are bits of masks."""

    def __init__(self, *, exactly: bool) -> None:
        """`exactly`: readers see an increment of theirs that was not answered when they do, each in its own time."""
        self._each = exactly
        self._counters: dict[str, _Counter] = {}

    def room(self, counter: str) -> bool:
        return self._of(counter).count < MOST

    def tries(self, counter: str) -> int:
        """Bit of a new increment."""
        its = self._of(counter)
        its.count += 1
        return 1 << (its.count - 1)

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

    def before(self, counter: str, reader: str) -> tuple[int, int]:
        """What a read that begins now must show."""
        its = self._of(counter)
        return its.answered, its.seen.get(reader if self._each else "", 0)

    def read(self, reading: Reading, reader: str, before: tuple[int, int], *, at_rest: bool = False) -> None:
        """Exact: all answered before it began, none twice, nothing that was never tried, nothing unseen again."""
        its = self._of(reading.name)
        answered, seen = before
        mask = digits(reading.value)
        assert reading.exact
        assert reading.value == reading.applied + reading.pending
        assert not (at_rest and reading.pending), f"{reading.name}: pending for ever: {digits(reading.pending):b}"
        assert answered & ~mask == 0, f"{reading.name}: answered 202 and missing: {answered & ~mask:b}"
        assert mask < 1 << its.count, f"{reading.name}: something was counted that nobody sent"
        assert seen & ~mask == 0, f"{reading.name}: seen before, and gone: {seen & ~mask:b}"
        key = reader if self._each else ""
        its.seen[key] = its.seen.get(key, 0) | mask

    def _of(self, counter: str) -> _Counter:
        return self._counters.setdefault(counter, _Counter())


def digits(value: int) -> int:
    """The increments in a total, as a mask."""
    mask, bit = 0, 1
    while value:
        value, digit = divmod(value, 4)
        assert digit < 2, f"an increment was counted {digit} times"
        mask |= bit * digit
        bit <<= 1
    return mask
