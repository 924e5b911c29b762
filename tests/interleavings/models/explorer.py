"""Explores all states that a model can reach, breadth first, so that a counter-example is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)
Steps = Iterable[tuple[str, S]]


class WrongError(Exception):
    """A step shows what must never be."""


class Explored(NamedTuple):
    """How many states there are, and the steps that lead to one that must not be, if any."""

    states: int
    trace: list[str] | None


def explore(first: S, steps: Callable[[S], Steps[S]]) -> Explored:
    """`steps` yields what may happen next and the state after it, or raises `WrongError`."""
    parents: dict[S, tuple[S, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        try:
            for label, after in steps(state):
                if after not in parents:
                    parents[after] = state, label
                    queue.append(after)
        except WrongError as wrong:
            return Explored(len(parents), [*reversed([*_labels(state, parents)]), str(wrong)])
    return Explored(len(parents), None)


def _labels(state: S, parents: dict[S, tuple[S, str] | None]) -> Iterator[str]:
    while (parent := parents[state]) is not None:
        state, label = parent
        yield label
