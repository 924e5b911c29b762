"""What sets made of counters: in which order, and which increments each of them found. And what a total says of both.

Each increment of a counter has a power of four as its delta, and sets give it multiples of one that none of them
reaches. So of a total the quotient says of which set it is, and the digits of the rest, which increments came later; a
2 among them says that one was counted twice.
"""

from typing import NamedTuple

from shared.model.buckets import Instant
from shared.model.receipts import read_note
from shared.model.words import Commit
from shared.runtime.clock import Clock
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.store import MemoryStore

MOST = 26
"""Powers of four below 2^53."""
BASE = 4**MOST


class Epoch(NamedTuple):
    """From one set of a counter to the next."""

    number: int
    """What it was set to, in multiples."""
    found: int
    """Increments that this set found, or one before it: a mask."""


class ChangedStore(MemoryStore):
    """Remembers the sets that were committed, and what they said: per counter, in order, by their receipts. With a
    broker, both are one file: a commit raises the floors of what it changes.
    """

    def __init__(self, clock: Clock, broker: MemoryBroker | None = None) -> None:
        super().__init__(clock)
        self.file = broker
        self.changes: dict[str, dict[str, tuple[int, int]]] = {}

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if self.file is not None:
            await MemoryOverlay(self.file).changed(commit.changes, time)
        if commit.guard is not None:
            change = read_note(commit.receipts[0].note).change
            assert change is not None
            self.changes.setdefault(commit.guard[0], {})[commit.receipts[0].key] = change
        return time

    def epochs(self, counter: str) -> list[Epoch]:
        """The first is that before all sets. Each set has to find just what there was since the one before it."""
        epochs = [Epoch(0, 0)]
        for before, after in self.changes.get(counter, {}).values():
            last = epochs[-1]
            number, mask = split(before)
            assert number == last.number, (
                f"{counter}: a set found {number}, though the one before it made {last.number}"
            )
            assert mask & last.found == 0, f"{counter}: a set found once more {mask & last.found:b}"
            epochs.append(Epoch(after // BASE, last.found | mask))
        return epochs

    def epoch_of(self, counter: str, receipt: str) -> int:
        """Which epoch that set began."""
        return 1 + [*self.changes[counter]].index(receipt)


def split(total: int) -> tuple[int, int]:
    """Number of the set, and the mask of the increments since then."""
    assert total >= 0, "there is less than nothing"
    number, rest = divmod(total, BASE)
    mask, bit = 0, 1
    while rest:
        rest, digit = divmod(rest, 4)
        assert digit < 2, f"an increment was counted {digit} times"
        mask |= bit * digit
        bit <<= 1
    return number, mask


class Shown(NamedTuple):
    """What a total shows."""

    increments: int
    """All of them, a mask."""
    sets: int
    """How many of the sets after the first of the epochs it surely shows."""


def counted(total: int, epochs: list[Epoch], *, answered: int, seen: int, tried: int) -> Shown:
    """What a total shows that is of one of these epochs; or why it can't be."""
    number, mask = split(total)
    flaws = []
    for sets, epoch in enumerate(epochs):
        there = mask | epoch.found
        if epoch.number != number:
            flaws.append(f"it is not of set {epoch.number}, but {number}")
        elif mask & epoch.found:
            flaws.append(f"counted before the set and after it: {mask & epoch.found:b}")
        elif answered & ~there:
            flaws.append(f"answered 202 and missing: {answered & ~there:b}")
        elif seen & ~there:
            flaws.append(f"seen before, and gone: {seen & ~there:b}")
        elif mask & ~tried:
            flaws.append(f"counted, and nobody sent it: {mask & ~tried:b}")
        else:
            return Shown(there, sets)
    raise AssertionError("; ".join(flaws))
