"""Commits that owe, flushers that tell, and a receiver that keeps the greatest sequence: at rest it has the total.

One counter of a store in which commits do not read, as in Datastore. Processes commit, by what they have last seen of
the rules; two flushers tell, since a lease may end too early, and are killed anywhere. Events may arrive in any order,
and again, which makes no difference: the greatest is kept. See docs/adr/0037.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, alike

COMMITS: Final = 2
RULES: Final = frozenset({"told first", "its mark", "one instant", "waits", "bound", "its version"})
"""Each of them is needed: a debt is settled after it was told; by the mark that was read; with the value of the same
instant; a sweep waits until commits that do not follow the rules have ended; these end; and a settled debt goes in the
version that was read.
"""


class Store(NamedTuple):
    """What it holds at one instant. Commits add 1, so an instant is called by the value."""

    value: int = 0
    mark: int = 0
    """That of the last commit that owes; 0 if there is none."""
    told: int = 0
    """The mark that was told last. While it is another one, the counter is owed."""


NOTHING: Final = Store(-9)
"""A flusher that has read nothing."""


class Teller(NamedTuple):
    read: Store = NOTHING
    told: bool = False
    settled: bool = False


class State(NamedTuple):
    store: Store = Store()
    marks: int = 0
    written: bool = False
    """Whether the rules are in the store."""
    over: bool = False
    """Whether so much time has passed since then that no commit may follow what was seen before."""
    swept: bool = False
    follows: tuple[bool, ...] = (False, False)
    """Whether each process that commits has seen the rules. These, and flushers, are in no order: they are alike."""
    tellers: tuple[Teller, ...] = (Teller(), Teller())
    kept: tuple[int, int] = (-1, 0)


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if not s.written:
            yield "the rules are written", s._replace(written=True)
        elif not s.over:
            yield "twelve minutes pass", s._replace(over=True)
        if s.written and not s.swept and (s.over or "waits" not in self._rules):
            yield "a sweep owes the counter", self._owes(s._replace(swept=True))
        for place, follows in enumerate(s.follows):
            if s.written and not follows:
                yield f"process {place} sees the rules", s._replace(follows=alike(s.follows, place, value=True))
            if s.store.value < COMMITS and (follows or not s.over or "bound" not in self._rules):
                after = s._replace(store=s.store._replace(value=s.store.value + 1))
                yield f"process {place} commits", self._owes(after) if follows else after
        for place, one in enumerate(s.tellers):
            yield from self._tell(s, place, one)

    def _tell(self, s: State, place: int, one: Teller) -> Iterator[tuple[str, State]]:
        now, read = s.store, one.read
        if read == NOTHING:
            if now.mark or now.told:
                yield f"flusher {place} reads", self._with(s, place, Teller(now))
            return
        free = self._with(s, place, Teller())
        yield f"flusher {place} ends, or is killed", free
        if read.mark == read.told:
            if now[1:] == read[1:] or "its version" not in self._rules:
                yield f"flusher {place} deletes {read.mark}", free._replace(store=now._replace(mark=0, told=0))
            return
        if not one.told and (not one.settled or "told first" not in self._rules):
            told = (read.value, read.value if "one instant" in self._rules else max(0, read.value - 1))
            after = self._with(s, place, one._replace(told=True))
            yield f"flusher {place} tells {told}", after._replace(kept=max(s.kept, told))
        if not one.settled and (one.told or "told first" not in self._rules):
            mark = read.mark if "its mark" in self._rules else now.mark
            after = self._with(s, place, one._replace(settled=True))
            yield f"flusher {place} settles {mark}", after._replace(store=now._replace(told=mark))

    def _owes(self, s: State) -> State:
        return s._replace(marks=s.marks + 1, store=s.store._replace(mark=s.marks + 1))

    def _with(self, s: State, place: int, one: Teller) -> State:
        return s._replace(tellers=alike(s.tellers, place, one))

    def flaw(self, s: State) -> str | None:
        """At rest: nothing is owed, under way, or about to be swept."""
        busy = s.store.mark != s.store.told or any(one.read != NOTHING for one in s.tellers)
        rests = s.swept and s.over and s.store.value == COMMITS and not busy
        return "the receiver has another value" if rests and s.kept[1] != s.store.value else None
