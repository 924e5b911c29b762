"""Explores all states of a model breadth first; the shortest way to a state that must not be is its answer."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

State = TypeVar("State")
T = TypeVar("T")


class WrongError(Exception):
    """A step shows what must never be."""


def put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def alike(pair: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """A pair that is in no order, since both are alike."""
    return tuple(sorted((value, pair[1 - at])))  # type: ignore[type-var] # a tuple itself


class RuledModel:
    """A model with all of its `rules`, or with some of them, which shows that the others are needed."""

    rules: ClassVar[frozenset[str]]

    def __init__(self, rules: Iterable[str] | None = None) -> None:
        self._rules = self.rules if rules is None else frozenset(rules)

    def flaw(self, _: Any) -> str | None:
        """What must never be in a state. Of some models, a step alone can show it."""
        return None


def explore(
    first: State,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    flaw: Callable[[State], str | None] = lambda _: None,
) -> tuple[int, list[str]]:
    """How many states there are, and, if one has a flaw or a step raises `WrongError`, the steps that lead there."""
    before: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        if (wrong := flaw(state)) is not None:
            return len(before), [*_way(state, before), wrong]
        try:
            for name, after in steps(state):
                if after not in before:
                    before[after] = state, name
                    waiting.append(after)
        except WrongError as error:
            return len(before), [*_way(state, before), str(error)]
    return len(before), []


def _way(state: State, before: dict[State, tuple[State, str] | None]) -> list[str]:
    names: list[str] = []
    while (came := before[state]) is not None:
        state, name = came
        names.append(name)
    return names[::-1]
