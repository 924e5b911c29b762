"""Key spaces of several distributions, each of any size: what the index-th name is."""

import random
import uuid
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from math import sqrt
from statistics import NormalDist
from typing import Final

from tests.unit.model.key_space.virtual import Computed, Keys

_MASK: Final = 2**64 - 1
LEAF: Final = 32
NORMAL: Final = NormalDist()
LONG: Final = "https://example.org/" + "a-long-path/" * 25


class Several:
    """One behind another."""

    def __init__(self, *parts: Keys) -> None:
        self._parts = parts
        self._ends = [*accumulate(part.size for part in parts)]
        self.size = self._ends[-1]

    def key(self, index: int) -> str:
        number = bisect_right(self._ends, index)
        return self._parts[number].key(index - (self._ends[number - 1] if number else 0))


class Points:
    """So many random numbers below 2^64 in order, none of them kept: how many are in the lower half is drawn by chance,
    the same each time; and so on in each half, until they are few, of which each is somewhere in a part of its own.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, _mix(seed)
        self._lower = lru_cache(2**17)(self._draw)

    def at(self, index: int) -> int:
        low, bits, size, node = 0, 64, self._size, 1
        while size > LEAF:
            lower = self._lower(size, node)
            bits -= 1
            node += node
            if index < lower:
                size = lower
            else:
                node += 1
                low, index, size = low + (1 << bits), index - lower, size - lower
        within = _mix(self._seed ^ node * LEAF + index) >> (64 - bits)
        return low + ((index << bits) + within) // size

    def _draw(self, size: int, node: int) -> int:
        chance = (_mix(self._seed ^ node) + 0.5) / 2**64
        return min(max(round((size + sqrt(size) * NORMAL.inv_cdf(chance)) / 2), 0), size)


def _mix(seed: int) -> int:
    """The next one of splitmix64."""
    seed = (seed + 0x9E3779B97F4A7C15) & _MASK
    seed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    seed = ((seed ^ seed >> 27) * 0x94D049BB133111EB) & _MASK
    return seed ^ seed >> 31


def padded(size: int) -> Keys:
    """page:00000000, page:00000001, …"""
    return Computed(size, lambda index: f"page:{index:08}")


def wide(size: int) -> Keys:
    """The same with many more zeros: the numbers could go much further."""
    return Computed(size, lambda index: f"page:{index:025}")


def tenants(size: int) -> Keys:
    """A hundred names of each tenant, who have numbers."""
    return Computed(size, lambda index: f"tenant-{index // 100:07}/metric/{index % 100:02}")


def plain(size: int) -> Keys:
    """user:0/views, user:1/views, user:10/views, …: numbers as they are written, up to so many digits."""
    digits = len(str(size - 1))
    trees = [0, *accumulate(10**more for more in range(digits))]  # how many begin with one digit more

    def key(index: int) -> str:
        number, left, more = 0, index - 1, digits
        while left >= 0:
            digit, left = divmod(left, trees[more])
            number, left, more = number * 10 + digit + (not number), left - 1, more - 1
        return f"user:{number}/views"

    return Computed(10**digits, key)


def uuids(size: int, prefix: str = "") -> Keys:
    points = Points(size, 1)

    def key(index: int) -> str:
        number = points.at(index)
        return prefix + str(uuid.UUID(int=number << 64 | _mix(number)))

    return Computed(size, key)


def zipf(size: int, words: int = 20_000) -> Keys:
    """The n-th most frequent of the words has a share of about 1/n: word/000000, word/000001, …"""
    chance = random.Random(7)
    syllables = [first + vowel for first in "bcdfghklmnprstvwz" for vowel in "aeiou"]
    names: set[str] = set()
    while len(names) < min(words, size):
        names.add("".join(chance.choices(syllables, k=chance.randint(1, 4))))
    weights = [1 / number for number in range(1, len(names) + 1)]
    chance.shuffle(weights)
    scale = (size - len(names)) / sum(weights)
    sizes = [1 + int(weight * scale) for weight in weights]
    sizes[0] += size - sum(sizes)

    def of(word: str, number: int) -> Keys:
        width = len(str(number - 1))
        return Computed(number, lambda index: f"{word}/{index:0{width}}")

    return Several(*map(of, sorted(names, key=lambda name: f"{name}/"), sizes))


def unicode(size: int) -> Keys:
    """Random letters of nine scripts, of each another share of the names."""
    scripts = [
        "abcdefghijklmnopqrstuvwxyz",
        "abcdefghijklmnopqrstuvwxyzßàáâäåæçèéêëíîïñóôöøúûü",
        *("".join(map(chr, range(low, high))) for low, high in ((0x3B1, 0x3CA), (0x430, 0x450), (0x5D0, 0x5EB))),
        *("".join(map(chr, range(low, high))) for low, high in ((0x3041, 0x3094), (0x4E00, 0x9FA6), (0xAC00, 0xD7A4))),
        "".join(map(chr, range(0x1F600, 0x1F650))),
    ]
    marks = ["", "é", "", "", "", "", "", "", ""]
    weights = [30, 10, 4, 12, 4, 8, 20, 8, 4]

    def of(number: int) -> Keys:
        script, points = scripts[number], Points(size * weights[number] // 100, number)

        def key(index: int) -> str:
            point, letters = points.at(index), []
            for _ in range(12):
                letters.append(script[point * len(script) >> 64])
                point = point * len(script) & _MASK
            return marks[number] + "".join(letters)

        return Computed(size * weights[number] // 100, key)

    return Several(*map(of, range(len(scripts))))


def long(size: int) -> Keys:
    return uuids(size, LONG)


def clumps(size: int) -> Keys:
    """Nine of ten are dense numbers under one prefix; the others are everywhere around them."""
    sparse = uuids(size // 20, "a")
    dense = Computed(size - 2 * (size // 20), lambda index: f"event-log/2026/{index:09}")
    return Several(sparse, dense, Computed(size // 20, lambda index: f"z{sparse.key(index)[1:]}"))


SPACES: Final[dict[str, Callable[[int], Keys]]] = {
    "padded": padded, "wide": wide, "plain": plain, "tenants": tenants, "uuids": uuids, "zipf": zipf,
    "unicode": unicode, "long": long, "clumps": clumps,
}  # fmt: skip
