"""Commits that do not read, and flushers that count back from the total: each threshold that was reached is told.

One counter with a threshold at 1. Commits add or set, by what they have last seen of the rules; two flushers read,
since a lease may end too early, and are killed anywhere. See docs/adr/0037.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, alike

COMMITS: Final = 3
RULES: Final = frozenset({"one instant", "one commit", "oldest first", "generations", "waits", "bound", "told first"})
"""Each of them is needed: rows and total are of one instant; a row goes in the commit that keeps what it reached; the
oldest go first; a set tells the generation before it; rows count only when commits that write none have ended; these
end; and what was reached goes after it was told.
"""


class Row(NamedTuple):
    number: int
    """That of its commit, from 1."""
    delta: int
    before: int = 0
    """For a set, the generation that it ends, else 0. Its own is its number."""


class Store(NamedTuple):
    """What it holds at one instant."""

    value: int = 0
    generation: int = -1
    rows: tuple[Row, ...] = ()
    reached: frozenset[int] = frozenset()
    """Generations in which the threshold was reached, and that were not told."""


class Teller(NamedTuple):
    plan: tuple[tuple[Row, int], ...] = ()
    """For each row that it read, the generation in which it reached the threshold, or 0."""
    lost: int = 0
    """What it still has to keep, of a row that is deleted."""
    rows: Store = Store()
    """What it read before the total, if that is no longer of the same instant."""


class State(NamedTuple):
    store: Store = Store()
    commits: int = 0
    written: bool = False
    over: int = 0
    """The first commit for which it is known that all follow the rules; 0 before."""
    tellers: tuple[Teller, ...] = (Teller(), Teller())
    really: frozenset[int] = frozenset()
    needed: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if not s.written:
            yield "the rules are written", s._replace(written=True)
        elif not s.over:
            yield "twelve minutes pass", s._replace(over=s.commits + 1)
        for follows in (False, True):
            may = s.written if follows else not s.over or "bound" not in self._rules
            if may and s.commits < COMMITS:
                for delta in (1, -1):
                    yield f"a commit adds {delta}, {follows=}", self._commit(s, delta, follows=follows)
                if s.store.value != 1:
                    yield f"a set to 1, {follows=}", self._commit(s, 1, follows=follows, sets=True)
        for place, one in enumerate(s.tellers):
            yield from self._judge(s, place, one)
        for reached in s.store.reached:
            yield f"a flusher tells {reached}", s._replace(told=s.told | {reached})
            if reached in s.told or "told first" not in self._rules:
                yield f"{reached} goes", s._replace(store=s.store._replace(reached=s.store.reached - {reached}))

    def _commit(self, s: State, number: int, *, follows: bool, sets: bool = False) -> State:
        now, commit = s.store, s.commits + 1
        value, generation = (number, commit) if sets else (now.value + number, now.generation)
        row = Row(commit, value - now.value, now.generation if sets else 0)
        store = now._replace(value=value, generation=generation, rows=(*now.rows, row) if follows else now.rows)
        crossed = frozenset({generation} if now.value < 1 <= value else ())
        needed = s.needed | crossed if s.over else s.needed
        return s._replace(store=store, commits=commit, really=s.really | crossed, needed=needed)

    def _judge(self, s: State, place: int, one: Teller) -> Iterator[tuple[str, State]]:
        now = s.store
        if one != Teller():
            yield f"flusher {place} is killed", self._with(s, place, Teller())
        if one.rows.rows:
            read = Teller(tuple(self._plan(s, one.rows, now.value)))
            yield f"flusher {place} reads the total", self._with(s, place, read)
        elif one.lost:
            after = self._with(s, place, one._replace(lost=0))
            yield f"flusher {place} keeps {one.lost}", after._replace(store=self._kept(now, one.lost))
        elif one.plan:
            row, generation = one.plan[0 if "oldest first" in self._rules else -1]
            rest = Teller(tuple(other for other in one.plan if other[0] != row))
            store = now._replace(rows=tuple(other for other in now.rows if other != row))
            if "one commit" in self._rules:
                store = self._kept(store, generation)
            else:
                rest = rest._replace(lost=generation)
            yield f"flusher {place} judges {row}", self._with(s, place, rest)._replace(store=store)
        elif now.rows:
            read = Teller(tuple(self._plan(s, now, now.value))) if "one instant" in self._rules else Teller(rows=now)
            yield f"flusher {place} reads", self._with(s, place, read)

    def _plan(self, s: State, read: Store, total: int) -> list[tuple[Row, int]]:
        plan, generation = [], read.generation
        for row in reversed(read.rows):
            its = row.number if row.before else generation
            holds = bool(s.over) and (row.number >= s.over or "waits" not in self._rules)
            plan.append((row, its if total - row.delta < 1 <= total and holds else 0))
            total -= row.delta
            if row.before and "generations" in self._rules:
                generation = row.before
        return plan[::-1]

    def _kept(self, store: Store, generation: int) -> Store:
        return store._replace(reached=store.reached | {generation}) if generation else store

    def _with(self, s: State, place: int, one: Teller) -> State:
        return s._replace(tellers=alike(s.tellers, place, one))

    def flaw(self, s: State) -> str | None:
        if not s.told <= s.really:
            return "a threshold is told that was not reached"
        busy = s.store.rows or s.store.reached or s.tellers != (Teller(), Teller())
        rests = s.commits == COMMITS and not busy
        return "a threshold is missed" if rests and not s.needed <= s.told else None
