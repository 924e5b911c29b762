"""Keeps names in the order in which they are listed. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

BLOCK: Final = 512
"""Names in a block, which is divided when it has twice as many."""
SLICE: Final = 4_096
"""Names that are looked at before the caller can do something else."""


def in_blocks(names: Sequence[str]) -> Iterator[list[list[str]]]:
    """The names in sorted blocks, at the end. Before it yields now and then, so that the caller can do something else:
    to sort all at once would take too long.
    """
    pivots = sorted(names[BLOCK::BLOCK])
    blocks: list[list[str]] = [[] for _ in range(len(pivots) + 1)]
    for begin in range(0, len(names), SLICE):
        for name in names[begin : begin + SLICE]:
            blocks[bisect_right(pivots, name)].append(name)
        yield []
    for number, block in enumerate(blocks):
        block.sort()
        if number % (SLICE // BLOCK) == 0:
            yield []
    yield blocks


class NameIndex:
    """A sorted set of names, in blocks, so that one more moves only a few others."""

    def __init__(self, blocks: Sequence[list[str]] = ()) -> None:
        """`blocks`: sorted names, as `in_blocks` returns them."""
        self._blocks = [block for block in blocks if block]
        self._firsts = [block[0] for block in self._blocks]
        """A name that is no larger than any in the block, and larger than all in those before."""
        self._firsts[:1] = [""] if self._blocks else []

    def add(self, name: str) -> None:
        if not self._blocks:
            self._blocks, self._firsts = [[name]], [""]
            return
        at = bisect_right(self._firsts, name) - 1
        block = self._blocks[at]
        place = bisect_left(block, name)
        if place < len(block) and block[place] == name:
            return
        block.insert(place, name)
        if len(block) > 2 * BLOCK:
            self._blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]
            self._firsts.insert(at + 1, block[BLOCK])

    def discard(self, name: str) -> None:
        if not self._blocks:
            return
        at = bisect_right(self._firsts, name) - 1
        block = self._blocks[at]
        place = bisect_left(block, name)
        if place < len(block) and block[place] == name:
            del block[place]
            if not block and at:
                del self._blocks[at], self._firsts[at]

    def page(self, prefix: str, after: str, limit: int | None) -> list[str]:
        """Up to `limit` names that begin with the prefix and come behind `after`, in order."""
        found: list[str] = []
        if not self._blocks:
            return found
        at = bisect_right(self._firsts, max(prefix, after)) - 1
        block = self._blocks[at]
        place = bisect_left(block, prefix) if prefix > after else bisect_right(block, after)
        for number in range(at, len(self._blocks)):
            block = self._blocks[number]
            for index in range(place, len(block)):
                if len(found) == limit or not block[index].startswith(prefix):
                    return found
                found.append(block[index])
            place = 0
        return found
