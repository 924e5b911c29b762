"""A member that stops in good order, and what others do with its record and its list of receipts (ADR 32).

P publishes, may lose Redis, and stops. Others name an overlay, settle, and remove the record of P. A reader has a base,
and looks before it views. Redis may be emptied once. Times are numbers of commits in the store.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, WrongError, put

OWES, OUT = 0, -1
"""Records of P; any other is the epoch that it has joined."""
PUBLISHED, CONFIRMED, ANSWERED = 1, 2, 3
CHANGES: Final = 3


class Base(NamedTuple):
    """A snapshot of the store."""

    time: int
    holds: frozenset[int]
    asked: frozenset[int]
    epoch: int


NOTHING: Final = frozenset[int]()


class State(NamedTuple):
    """Everything. Increments are numbers."""

    phases: tuple[int, ...]
    applied: tuple[int, ...]
    """The commit of each, or 0."""
    commits: int = 0
    changes: int = 0
    redis: int = 1
    """The epoch whose key Redis holds; 0 after it was emptied."""
    entries: frozenset[int] = NOTHING
    floor: int = 0
    epoch: int = 1
    record: int = 1
    stopped: frozenset[int] | None = None
    """The list in the store, or None."""
    changed: int = 0
    writes_to: int = 1
    """The epoch that P writes to; 0 while it has no Redis."""
    owes: bool = False
    """P knows that its record owes."""
    made: frozenset[int] | None = None
    """The list that P has made, before its commit."""
    alive: bool = True
    base: Base | None = None
    look: tuple[frozenset[int], int, int] | None = None
    """What a reading has to have, the epoch and the last change that its look found."""
    shown: frozenset[int] = NOTHING


RULES: Final = frozenset({"ends publishes", "lists confirmed", "lists its copy", "all of it", "needs list", "voids"})
"""Each of them is needed: P answers nothing after it made its list; that has what is confirmed, not only what was
answered; from its copy, not from Redis; the record goes when all of the list is settled; a process that is gone
without a list is not taken for one that stopped; and the removal of the record voids bases.
"""


class Model(RuledModel):
    rules = RULES

    def first(self) -> State:
        """One increment that is not published yet; or where it matters that they are several, two that are pending."""
        if "all of it" in self._rules:
            return State((0,), (0,))
        return State((ANSWERED,) * 2, (0,) * 2, entries=frozenset(range(2)))

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._of_p(state)
        yield from self._of_others(state)
        yield from _of_reader(state)

    def _of_p(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.alive:
            return
        yield "P is killed", state._replace(alive=False, made=None)
        yield from self._of_increments(state)
        if state.made is None:
            yield from self._until_its_list(state)
        elif state.record != OUT and state.stopped is None and state.changes < CHANGES:
            yield "P has stopped", _change(state, stopped=state.made)

    def _of_increments(self, state: State) -> Iterator[tuple[str, State]]:
        goes_on = state.made is None or "ends publishes" not in self._rules
        for at, phase in enumerate(state.phases):
            if phase == 0 and goes_on and all(state.phases[:at]):
                yield f"P publishes {at}", state._replace(phases=put(state.phases, at, PUBLISHED))
            if phase == PUBLISHED and goes_on and state.writes_to == state.redis != 0:
                entered = state._replace(phases=put(state.phases, at, CONFIRMED), entries=state.entries | {at})
                yield f"P enters {at}", entered
            joined = state.writes_to != 0 and state.record in {state.writes_to, OWES}
            if (phase == PUBLISHED and goes_on and state.owes) or (phase == CONFIRMED and (state.owes or joined)):
                yield f"P answers {at}", state._replace(phases=put(state.phases, at, ANSWERED))

    def _until_its_list(self, state: State) -> Iterator[tuple[str, State]]:
        if state.writes_to:
            yield "P loses Redis", state._replace(writes_to=0)
        if not state.owes and state.record != OUT and state.changes < CHANGES:
            yield "P owes", _change(state, record=OWES, owes=True)
        if "ends publishes" not in self._rules or not _in(state, PUBLISHED):
            listed = _in(state, CONFIRMED, ANSWERED) if "lists confirmed" in self._rules else _in(state, ANSWERED)
            listed -= _applied(state)
            if "lists its copy" not in self._rules:
                listed &= state.entries
            yield "P makes its list", state._replace(made=listed)

    def _of_others(self, state: State) -> Iterator[tuple[str, State]]:
        applied, now = _applied(state), state.commits + 1
        for at, phase in enumerate(state.phases):
            if phase and not state.applied[at]:
                yield f"{at} is applied", state._replace(commits=now, applied=put(state.applied, at, now))
        if done := state.entries & applied:
            floor = max(state.floor, *(state.applied[at] for at in done))
            yield "entries are settled", state._replace(entries=state.entries - done, floor=floor)
        if state.redis == 1:
            yield "Redis is emptied", state._replace(redis=0, entries=NOTHING, floor=0)
        if state.changes == CHANGES:
            return
        if state.redis == 0:
            epoch = state.epoch + 1
            yield "somebody names it anew", _change(state, epoch=epoch, redis=epoch)
        its = state.stopped
        if its is None and "needs list" not in self._rules and not state.alive:
            its = NOTHING
        if (
            its is not None
            and state.record != OUT
            and (its <= applied or ("all of it" not in self._rules and its & applied))
        ):
            after = _change(state, record=OUT, stopped=None)
            yield (
                "the record of P is removed",
                after if "voids" in self._rules else after._replace(changed=state.changed),
            )


def _change(state: State, **what: Any) -> State:
    now = state.commits + 1
    return state._replace(commits=now, changed=now, changes=state.changes + 1)._replace(**what)


def _in(state: State, *phases: int) -> frozenset[int]:
    return frozenset(at for at, phase in enumerate(state.phases) if phase in phases)


def _applied(state: State) -> frozenset[int]:
    return frozenset(at for at, commit in enumerate(state.applied) if commit)


def _of_reader(state: State) -> Iterator[tuple[str, State]]:
    good, applied = state.redis == state.epoch, _applied(state)
    base = Base(state.commits, applied, state.entries, state.epoch)
    if good and base != state.base:
        yield "R has a base", state._replace(base=base)
    if state.look is None:
        if state.record in {OUT, state.epoch}:
            needed = _in(state, ANSWERED) | state.shown
            yield "R is asked, and looks", state._replace(look=(needed, state.epoch, state.changed))
        return
    yield "R says inexact", state._replace(look=None)
    needed, epoch, changed = state.look
    if not good or epoch != state.epoch or (base := state.base) is None or base.epoch != epoch:  # type: ignore[assignment]
        return
    if base.time < max(state.floor, changed) or not state.entries <= base.asked:
        return
    value = base.holds | state.entries
    if not needed <= value:
        raise WrongError("a reading says exact and misses an increment")
    yield "R answers", state._replace(look=None, shown=state.shown | (value & _in(state, CONFIRMED, ANSWERED)))
