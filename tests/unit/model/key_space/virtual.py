"""A store of up to hundreds of millions of names, which are computed when somebody looks at them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, overload

REMEMBERED: Final = 10_000


class Keys(Protocol):
    """Names in order."""

    size: int

    def key(self, index: int) -> str: ...


class Computed:
    """By a function that grows."""

    def __init__(self, size: int, key: Callable[[int], str]) -> None:
        self.size, self.key = size, key


class Page(Sequence[str]):
    """Some of them."""

    def __init__(self, keys: Keys, begin: int, end: int) -> None:
        self._keys, self._range = keys, range(begin, end)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self._keys.key(number) for number in self._range[index]]
        return self._keys.key(self._range[index])


class VirtualStore:
    """Lists as a store does."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._found: dict[str, int] = {}

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """All begin with the prefix."""
        begin = self._behind(after, 0, self.keys.size)
        end = min(begin + limit, self.keys.size)
        if until is not None and begin < end and self.keys.key(end - 1) > until:
            end = self._behind(until, begin, end)
        return Page(self.keys, begin, end)

    def __iter__(self) -> Iterator[str]:
        return map(self.keys.key, range(self.keys.size))

    def _behind(self, name: str, low: int, high: int) -> int:
        """How many are not behind it, which is no less and no more than that. The next range often begins there."""
        if name not in self._found:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            self._found[name] = bisect_right(range(self.keys.size), name, low, high, key=self.keys.key)
        return self._found[name]
