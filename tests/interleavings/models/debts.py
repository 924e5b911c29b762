"""Commits that owe, flushers that tell, and a receiver that keeps the greatest sequence: at rest it has the total.

One counter of a store in which commits do not read, as in Datastore. Processes commit, by what they have last seen of
the rules; two flushers tell, since a lease may end too early, and are killed anywhere; events arrive in any order, and
are told again. See docs/adr/0037.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel

COMMITS: Final = 2
RULES: Final = frozenset({"told first", "its version", "one instant", "waits", "bound"})
"""Each of them is needed: a debt goes after it was told; only in the version that was read; with the value of the same
instant; a sweep waits until commits that do not follow the rules have ended; and these end.
"""


class Instant(NamedTuple):
    """What the store holds from one change to the next."""

    value: int
    debt: int
    """The version of the debt; 0 if there is none."""


class Teller(NamedTuple):
    time: int = 0
    """The instant that it read; 0 if it tells nothing."""
    told: bool = False
    deleted: bool = False


class State(NamedTuple):
    history: tuple[Instant, ...] = (Instant(0, 0),)
    version: int = 0
    commits: int = 0
    written: bool = False
    """Whether the rules are in the store."""
    over: bool = False
    """Whether so much time has passed since then that no commit may follow what was seen before."""
    swept: bool = False
    follows: tuple[bool, ...] = (False, False)
    """Whether each process that commits has seen the rules. These, and flushers, are in no order: they are alike."""
    tellers: tuple[Teller, ...] = (Teller(), Teller())
    events: frozenset[tuple[int, int]] = frozenset()
    kept: tuple[int, int] = (0, 0)


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        now = s.history[-1]
        if not s.written:
            yield "the rules are written", s._replace(written=True)
        elif not s.over:
            yield "twelve minutes pass", s._replace(over=True)
        if s.written and not s.swept and (s.over or "waits" not in self._rules):
            yield "a sweep owes the counter", self._changed(s._replace(swept=True), now.value, owes=True)
        for place, follows in enumerate(s.follows):
            if s.written and not follows:
                after = s._replace(follows=tuple(sorted((True, s.follows[1 - place]))))
                yield f"process {place} sees the rules", after
            if s.commits < COMMITS and (follows or not s.over or "bound" not in self._rules):
                after = s._replace(commits=s.commits + 1)
                yield f"process {place} commits", self._changed(after, now.value + 1, owes=follows)
        for place, one in enumerate(s.tellers):
            yield from self._tell(s, place, one)
        for event in s.events:
            yield f"{event} arrives", s._replace(kept=max(s.kept, event), events=s.events - {event})

    def _tell(self, s: State, place: int, one: Teller) -> Iterator[tuple[str, State]]:
        if not one.time:
            for time, instant in enumerate(s.history):
                if instant.debt:
                    yield f"flusher {place} reads at {time}", self._with(s, place, Teller(time))
            return
        read = s.history[one.time]
        value = read.value if "one instant" in self._rules else s.history[one.time - 1].value
        if not one.told and (not one.deleted or "told first" not in self._rules):
            after = self._with(s, place, one._replace(told=True))
            yield f"flusher {place} tells {value}", after._replace(events=s.events | {(one.time, value)})
        if not one.deleted and (one.told or "told first" not in self._rules):
            after, now = self._with(s, place, one._replace(deleted=True)), s.history[-1]
            if now.debt == read.debt or (now.debt and "its version" not in self._rules):
                after = after._replace(history=(*s.history, Instant(now.value, 0)))
            yield f"flusher {place} deletes the debt {read.debt}", after
        yield f"flusher {place} ends, or is killed", self._with(s, place, Teller())

    def _changed(self, s: State, value: int, *, owes: bool) -> State:
        version = s.version + owes
        debt = version if owes else s.history[-1].debt
        return s._replace(history=(*s.history, Instant(value, debt)), version=version)

    def _with(self, s: State, place: int, one: Teller) -> State:
        return s._replace(tellers=tuple(sorted((one, s.tellers[1 - place]))))

    def flaw(self, s: State) -> str | None:
        """At rest: nothing is owed, under way, or about to be swept."""
        rests = s.swept and s.over and s.commits == COMMITS and not s.events and not any(one.time for one in s.tellers)
        now = s.history[-1]
        if not rests or now.debt or s.kept[1] == now.value:
            return None
        return "the receiver has another value"
