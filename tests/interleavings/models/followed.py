"""Two flushers on Datastore that follow no rules, and a reader: points that are said to be whole are.

Time is in ticks, each of them a period. A flusher takes an increment, promises its rules for some ticks unless somebody
has, and commits; between any of these it may stand still for ever so long. What it applies is missing from its bucket.
See docs/adr/0023.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, alike

FORCE: Final = 2
END: Final = 4
RULES: Final = frozenset({"promise", "then", "end"})
"""Each of them is needed: who commits has promised; after it took what it commits; and a promise that has ended is made
again.
"""


class Flusher(NamedTuple):
    taken: int = -1
    """The period of the increment that it holds; -1: none."""
    held: int = 0
    """Until when the promise holds that it knows."""
    sure: bool = False
    """Whether it has looked at that."""


class State(NamedTuple):
    now: int = 0
    promised: int = 0
    """Until when somebody may follow no rules, as the store has it. 0: nobody ever did."""
    flushers: tuple[Flusher, ...] = (Flusher(), Flusher())
    """In no order: they are alike."""
    lacks: tuple[int, ...] = (0,) * (END + 1)
    """Of each period, whether its bucket lacks something."""


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            yield f"time {s.now + 1}", s._replace(now=s.now + 1)
        for number, one in enumerate(s.flushers):
            if one.taken < 0:
                took = one._replace(taken=s.now, sure=one.sure and "then" not in self._rules)
                yield f"{number} takes one of {s.now}", _with(s, number, took)
            if not one.sure and (one.taken >= 0 or "then" not in self._rules):
                yield f"{number} is sure", self._sure(s, number, one)
            if one.taken >= 0 and (one.sure or "promise" not in self._rules):
                lacks = tuple([value or place == one.taken for place, value in enumerate(s.lacks)])
                yield f"{number} commits", _with(s._replace(lacks=lacks), number, one._replace(taken=-1, sure=False))

    def _sure(self, s: State, number: int, one: Flusher) -> State:
        if one.held > s.now or (one.held and "end" not in self._rules):
            return _with(s, number, one._replace(sure=True))
        promised = s.promised if s.promised > s.now else s.now + FORCE
        return _with(s._replace(promised=promised), number, one._replace(held=promised, sure=True))

    @staticmethod
    def flaw(s: State) -> str | None:
        """What a reading at this instant would say wrongly, and call whole."""
        return "a point is wrong" if any(s.lacks[s.promised :]) else None


def _with(s: State, number: int, one: Flusher) -> State:
    return s._replace(flushers=alike(s.flushers, number, one))
