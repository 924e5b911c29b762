"""Increments whose deltas are powers of four: a total says which of them it holds, and which of them twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 26
"""Powers of four below 2^53."""
OPEN = 3
"""Counters that are in use at once, if nobody says otherwise."""


@dataclass
class Truth:
    """Of one counter: bit masks of increments."""

    tried: int = 0
    answered: int = 0
    count: int = 0


@dataclass
class Truths:
    """Of as many counters as it takes."""

    spread: int = OPEN
    counters: dict[str, Truth] = field(default_factory=dict)
    _generations: dict[int, int] = field(default_factory=dict)
    """Of the counters that are in use."""

    def next(self, number: int) -> tuple[str, int, int]:
        """Counter, bit and delta of an increment that is about to be tried; `number` chooses among those open."""
        slot = number % self.spread
        if self.of(self._open(slot)).count == MOST:
            self._generations[slot] = self._generations.get(slot, 0) + 1
        name = self._open(slot)
        truth = self.of(name)
        bit, delta = 1 << truth.count, 4**truth.count
        truth.count += 1
        truth.tried |= bit
        return name, bit, delta

    def _open(self, slot: int) -> str:
        return f"counter:{slot}:{self._generations.get(slot, 0)}"

    def open(self) -> list[str]:
        """The counters that are in use, and have been."""
        return [name for slot in range(self.spread) if (name := self._open(slot)) in self.counters]

    def of(self, counter: str) -> Truth:
        return self.counters.setdefault(counter, Truth())

    def answer(self, counter: str, bit: int) -> None:
        self.of(counter).answered |= bit

    def answered(self) -> Mapping[str, int]:
        return {name: truth.answered for name, truth in self.counters.items()}


def split(value: int) -> tuple[int, int]:
    """The increments in a total, as a mask, and those of them that it holds more than once."""
    mask, more, bit = 0, 0, 1
    while value:
        value, digit = divmod(value, 4)
        mask |= bit * (digit > 0)
        more |= bit * (digit > 1)
        bit <<= 1
    return mask, more


def digits(value: int) -> int:
    """The increments in a total, as a mask."""
    mask, more = split(value)
    assert not more, "an increment was counted twice"
    return mask
