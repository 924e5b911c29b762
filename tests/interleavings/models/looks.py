"""Readings that lean on looks of a moment ago, and members that wait for that before they answer (ADR 18).

A publishes one increment, and may go apart, come back, and follow to another overlay, which somebody else names. A
reader keeps a look for `AGE` ticks, and a base. Time is ticks for looks, and numbers of commits for the store.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from tests.interleavings.models.explore import RuledModel

AGE = 1
"""Ticks for which a look serves questions."""
TICKS = 2
CHANGES = 2
OWES = 0


class Look(NamedTuple):
    """The fleet as it was found by a look that began at that tick."""

    begun: int
    epoch: int
    whole: bool
    changed: int


class Base(NamedTuple):
    """A snapshot of the store at `time`."""

    time: int
    applied: bool
    asked: bool
    epoch: int


class State(NamedTuple):
    """Everything. `a` is the record of A: an epoch, or `OWES`."""

    tick: int = 0
    commits: int = 0
    changes: int = 0
    epoch: int = 1
    changed: int = 0
    a: int = 1
    free: int = 0
    seen: tuple[int, int] = (1, -9)
    """The epoch that A knows of, and since when."""
    overlay: int = 1
    """The one that A writes to; 0: none."""
    published: bool = False
    kept: bool = False
    """A has it in its copy, and may answer apart."""
    written: int = 0
    """The overlay in which A knows it to be, not answered yet."""
    answered: bool = False
    applied: int = 0
    """The commit that applied it."""
    entries: tuple[bool, bool] = (False, False)
    floors: tuple[int, int] = (0, 0)
    look: Look | None = None
    snapshot: int | None = None
    base: Base | None = None


RULES: Final = frozenset({"waits for looks", "waits for epochs", "owes first", "changes void bases", "seeds"})
"""Each of them is needed: whoever answers apart, or in a new overlay, waits for longer than a look serves; it owes
before it answers; a change voids older bases; and whoever joins an overlay enters what it answered.
"""


class Model(RuledModel):
    rules = RULES

    def __init__(self, rules: Iterable[str] | None = None) -> None:
        super().__init__(rules)
        self._wait = AGE + ("waits for looks" in self._rules)
        """Ticks between a commit and the first answer that leans on it."""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.tick < TICKS:
            yield "a tick", state._replace(tick=state.tick + 1)
        yield from self._of_a(state)
        yield from _of_others(state)
        yield from _of_reader(state)

    def _of_a(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.published:
            yield "A publishes", state._replace(published=True)
            return
        at = state.overlay - 1
        joined = state.a == state.overlay != 0
        if not state.answered and state.overlay and not state.written:
            entries = tuple(there or number == at for number, there in enumerate(state.entries))
            yield f"A enters it in {state.overlay}", state._replace(written=state.overlay, entries=entries)  # type: ignore[arg-type]
        if not state.answered and state.tick >= state.free:
            if state.written and state.written == state.overlay and (joined or state.a == OWES):
                yield "A answers, it is entered", state._replace(answered=True, kept=True)
            if state.a == OWES or ("owes first" not in self._rules and not state.overlay):
                yield "A answers apart", state._replace(answered=True, kept=True)
        if state.changes < CHANGES and state.a != OWES:
            apart = _changed(state, a=OWES, free=state.tick + self._wait, overlay=0, written=0)
            yield "A owes", apart
        if state.overlay:
            yield "A loses Redis", state._replace(overlay=0, written=0)
        if state.seen[0] != state.epoch:
            yield "A sees the new epoch", state._replace(seen=(state.epoch, state.tick), overlay=0, written=0)
        yield from self._joined(state)

    def _joined(self, state: State) -> Iterator[tuple[str, State]]:
        if state.changes < CHANGES and state.seen[0] == state.epoch and (not state.overlay or state.a != state.epoch):
            there = state.kept and not state.applied and "seeds" in self._rules
            number = state.epoch - 1
            entries = tuple(one or (there and at == number) for at, one in enumerate(state.entries))
            free = state.free
            if state.epoch > 1 and "waits for epochs" in self._rules:
                free = max(free, state.seen[1] + self._wait)
            yield (
                "A enters what it answered, and joins",
                _changed(state, a=state.epoch, overlay=state.epoch, entries=entries, free=free, written=0),
            )

    def flaw(self, state: State) -> str | None:
        """Of a question that is asked now, and answered by the base and the overlay."""
        base, look = state.base, state.look
        if base is None or look is None or state.tick - look.begun > AGE:
            return None
        entered, floor = state.entries[look.epoch - 1], state.floors[look.epoch - 1]
        if not look.whole or base.epoch != look.epoch or base.time < floor:
            return None
        if "changes void bases" in self._rules and base.time < look.changed:
            return None
        if entered and not base.asked:
            return None  # every entry is late here
        value = base.applied + (entered and not base.applied)
        return "a reading says exact and misses it" if state.answered and not value else None


def _changed(state: State, **what: Any) -> State:
    now = state.commits + 1
    return state._replace(commits=now, changed=now, changes=state.changes + 1)._replace(**what)


def _of_others(state: State) -> Iterator[tuple[str, State]]:
    if state.changes < CHANGES and state.epoch == 1:
        yield "somebody names overlay 2", _changed(state, epoch=2)
    if state.published and not state.applied:
        now = state.commits + 1
        yield "it is applied", state._replace(commits=now, applied=now)
    for number, there in enumerate(state.entries):
        if there and state.applied:
            entries = tuple(one and at != number for at, one in enumerate(state.entries))
            floors = tuple(state.applied if at == number else one for at, one in enumerate(state.floors))
            yield f"it is settled in {number + 1}", state._replace(entries=entries, floors=floors)  # type: ignore[arg-type]


def _of_reader(state: State) -> Iterator[tuple[str, State]]:
    whole = state.a == state.epoch
    look = Look(state.tick, state.epoch, whole, state.changed)
    if look != state.look:
        yield "R looks", state._replace(look=look)
    if state.snapshot is None:
        yield "R chooses an instant", state._replace(snapshot=state.commits)
    if state.look is None or state.tick - state.look.begun > AGE:
        return
    epoch = state.look.epoch
    entered, floor = state.entries[epoch - 1], state.floors[epoch - 1]
    if state.snapshot is not None:
        time = state.snapshot
        base = Base(time, 0 < state.applied <= time, entered, epoch)
        yield "R has a base", state._replace(snapshot=None, base=base if time >= floor else state.base)
