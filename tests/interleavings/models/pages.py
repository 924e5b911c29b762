"""One job, a few counters, and the pages on which it finds their names, while increments move. See docs/adr/0011.

An accepted increment is an entry of the overlay. A flusher applies it or writes a dead receipt, then removes the
entry. A dead receipt may be replayed. For a page the job asks three places, one after the other. The next page begins
behind the last name of this one. Each counter of which something was accepted before the job must be on a page.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.interleavings.models.explore import put

OVERLAY: Final = "overlay"
DEAD: Final = "dead letters"
STORE: Final = "store"
ORDER: Final = (OVERLAY, DEAD, STORE)
"""The order in which the places are asked."""
PAGE: Final = 1


class Counter(NamedTuple):
    """Where the only increment of a counter is. It may be in two places for a while."""

    pending: bool = False
    dead: bool = False
    applied: bool = False

    def places(self) -> Iterator[str]:
        yield from [name for name, there in zip(ORDER, self, strict=True) if there]


class State(NamedTuple):
    counters: tuple[Counter, ...] = (Counter(),) * 2
    due: frozenset[int] | None = None
    """The counters with something accepted when the job began; None before."""
    after: int = -1
    """The last name of the page before."""
    asked: int = 0
    """How many places have been asked for this page."""
    found: frozenset[int] = frozenset()
    visited: frozenset[int] = frozenset()
    done: bool = False


class Model:
    """The places are asked in this order, all of them or some. Each answer holds at most a page of names; `merged`: so
    does what is visited, as the next page begins behind it.
    """

    def __init__(self, order: Sequence[str] = ORDER, *, merged: bool = True) -> None:
        self._order = order
        self._merged = merged

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for number, one in enumerate(s.counters):
            for what, moved in _moves(one):
                yield f"counter {number} {what}", s._replace(counters=put(s.counters, number, moved))
        if s.due is None:
            due = frozenset(number for number, one in enumerate(s.counters) if any(one))
            yield "the job begins", s._replace(due=due)
        elif not s.done:
            yield self._page(s)

    def _page(self, s: State) -> tuple[str, State]:
        if s.asked < len(self._order):
            place = self._order[s.asked]
            names = [n for n, one in enumerate(s.counters) if n > s.after and place in one.places()]
            found = s.found.union(names[:PAGE])
            return f"the {place} is asked", s._replace(asked=s.asked + 1, found=found)
        names = sorted(s.found)[: PAGE if self._merged else None]
        if not names:
            return "there is no more", s._replace(done=True)
        visited = s.visited.union(names)
        return f"it visits {names}", s._replace(visited=visited, after=names[-1], asked=0, found=frozenset())


def _moves(one: Counter) -> Iterator[tuple[str, Counter]]:
    if not any(one):
        yield "is counted", Counter(pending=True)
    elif one == Counter(pending=True):
        yield "is applied", one._replace(applied=True)
        yield "is refused", one._replace(dead=True)
    elif one.pending:
        yield "loses its entry", one._replace(pending=False)
    elif one.dead:
        yield "is replayed", Counter(applied=True)


def flaw(state: State) -> str | None:
    missing = sorted((state.due or frozenset()) - state.visited) if state.done else []
    return f"{missing} were accepted before the job, and it did not visit them" if missing else None
