"""Increments whose deltas are powers of four: a total says which of them it holds, and which of them twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 26
"""Powers of four below 2^53."""
OPEN = 3
"""Counters that are in use at once."""


@dataclass
class Truth:
    """Of one counter: bit masks of increments."""

    tried: int = 0
    answered: int = 0
    count: int = 0


@dataclass
class Truths:
    """Of as many counters as it takes."""

    counters: dict[str, Truth] = field(default_factory=dict)

    def next(self, number: int) -> tuple[str, int, int]:
        """Counter, bit and delta of an increment that is about to be tried; `number` chooses among those open."""
        slot, generation = number % OPEN, 0
        while self.of(name := f"counter:{slot}:{generation}").count == MOST:
            generation += 1
        truth = self.of(name)
        bit, delta = 1 << truth.count, 4**truth.count
        truth.count += 1
        truth.tried |= bit
        return name, bit, delta

    def of(self, counter: str) -> Truth:
        return self.counters.setdefault(counter, Truth())

    def answer(self, counter: str, bit: int) -> None:
        self.of(counter).answered |= bit

    def answered(self) -> Mapping[str, int]:
        return {name: truth.answered for name, truth in self.counters.items()}


def digits(value: int) -> int:
    """The increments in a total, as a mask."""
    mask, bit = 0, 1
    while value:
        value, digit = divmod(value, 4)
        assert digit < 2, "an increment was counted twice"
        mask |= bit * digit
        bit <<= 1
    return mask
