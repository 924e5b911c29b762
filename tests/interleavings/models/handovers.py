"""Flushers that come, stand still, stop and die, and what their reports say together of one old message (ADR 32).

It decides by the product's own rule, with shorter times: one tick is a second. The broker delivers a message at last
after `DELAY` ticks in which somebody pulled, and again when its lease has run out.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Final, NamedTuple
from unittest.mock import patch

from shared.model import fleet
from shared.model.buckets import NEVER, StoreMillis
from shared.model.fleet import Fleet, FlusherRecord, leaves, reported
from tests.interleavings.models.explore import RuledModel, WrongError, put

LEASE, DELAY, HOLDS = 1, 1, 1
"""`HOLDS`: ticks after which a flusher looks at the fleet, and gives everything back if it was taken for dead."""
ENOUGH: Final = 3
"""Ticks that flushers watch."""
TICKS: Final = 3
RUNS: Final = 2
_T0: Final = 1_000
"""When the member stopped."""


class Flusher(NamedTuple):
    """One run of a flusher, and its record."""

    begun: int
    until: int
    clear: bool = False
    struck: int = 0
    left: bool = False
    alive: bool = True
    frozen: bool = False
    sight: int = -99
    """When it saw something old, or may have."""


class State(NamedTuple):
    """Everything. `holder`: the flusher that holds the message; `leased`: until when nobody gets it."""

    tick: int = 0
    flushers: tuple[Flusher | None, ...] = ()
    """None: forgotten."""
    holder: int | None = None
    leased: int = 0
    waited: int = 0


RULES: Final = frozenset({"watches long enough", "keeps what it saw", "minds gaps"})
"""Each of them is needed: a flusher says that nothing is old when it has watched for `ENOUGH` ticks; what it saw
stays known when it has stopped; and one that stood still does not know what there was.
"""


class Model(RuledModel):
    rules = RULES

    def __init__(self, rules: Iterable[str] | None = None) -> None:
        super().__init__(rules)
        self._watches = ENOUGH if "watches long enough" in self._rules else 1

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Until the message is applied: then nothing can be wrong any more."""
        for label, after in self._steps(state):
            flushers = tuple(one and _plain(one, after.tick) for one in after.flushers)
            yield label, after._replace(flushers=flushers)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        if len(state.flushers) < RUNS and sum(bool(one and one.alive) for one in state.flushers) < 2:
            new = Flusher(state.tick, state.tick)
            yield "a flusher joins", state._replace(flushers=(*state.flushers, new))
        pulls = waits = False
        for number, one in enumerate(state.flushers):
            if one is None or not one.alive:
                continue
            holds = state.holder == number
            lets_go = {"holder": None, "leased": state.tick + LEASE, "waited": 0} if holds else {}
            yield f"{number} dies", _with(state, number, one._replace(alive=False), **lets_go)
            if one.frozen:
                sight = state.tick if "minds gaps" in self._rules else one.sight
                yield f"{number} goes on", _with(state, number, one._replace(frozen=False, sight=sight))
                continue
            pulls, waits = True, waits or state.tick - one.until >= HOLDS
            yield f"{number} stands still", _with(state, number, one._replace(frozen=True), **lets_go)
            if state.holder is None and state.leased <= state.tick and state.tick - one.until <= HOLDS:
                yield (
                    f"{number} pulls it",
                    _with(state, number, one._replace(sight=state.tick), holder=number, waited=0),
                )
            if one.struck:
                back = {"holder": None, "waited": 0} if holds else {}
                yield (
                    f"{number} hears that it was taken for dead",
                    _with(state, number, one._replace(alive=False), **back),
                )
                continue
            seen = one._replace(sight=state.tick) if holds else one
            yield f"{number} reports", self._reported(state, number, seen)
            for back in ({"holder": None, "waited": 0}, lets_go) if holds else ({},):
                yield f"{number} stops", self._left(state, number, seen, **back)
        if state.tick < TICKS and not waits and not (pulls and state.holder is None and state.waited >= DELAY):
            waited = state.waited + (pulls and state.holder is None and state.leased <= state.tick)
            yield "a tick", state._replace(tick=state.tick + 1, waited=waited)

    def _clear(self, state: State, one: Flusher) -> StoreMillis:
        return NEVER if state.tick - one.sight <= self._watches else _at(state.tick)

    def _reported(self, state: State, number: int, one: Flusher) -> State:
        state = _with(state, number, one)
        clear = self._clear(state, one)
        known = _said(reported, _records(state), number, clear, tick=state.tick, watches=self._watches)
        if known is None:
            raise WrongError("the member is forgotten, and its message is not applied")
        return _known(state, known)

    def _left(self, state: State, number: int, one: Flusher, **back: int | None) -> State:
        clear = self._clear(state, one) if "keeps what it saw" in self._rules else _at(state.tick)
        records = _records(_with(state, number, one))
        known = _said(leaves, records, number, clear, tick=state.tick, watches=self._watches)
        assert known is not None, "who stops forgets no member"
        return _known(_with(state, number, one._replace(alive=False), **back), known)


def _at(tick: int) -> StoreMillis:
    return StoreMillis((_T0 + tick) * 1000)


class Recorded(NamedTuple):
    """What the fleet knows of a flusher."""

    begun: int
    until: int
    clear: bool
    struck: int
    left: bool


def _records(state: State) -> tuple[Recorded | None, ...]:
    return tuple(one and Recorded(one.begun, one.until, one.clear, one.struck, one.left) for one in state.flushers)


def _fleet(records: tuple[Recorded | None, ...]) -> Fleet:
    here, left = dict[str, FlusherRecord](), dict[str, FlusherRecord]()
    for number, one in enumerate(records):
        if one is not None:
            clear, struck = _at(0) if one.clear else NEVER, _at(one.struck) if one.struck else NEVER
            record = FlusherRecord("t", 0, clear, _at(one.begun), _at(one.until), struck)
            (left if one.left else here)[str(number)] = record
    return Fleet(1, flushers=here, left=left).owes("gone", "t").stops("gone", _at(0), listed=False)


@cache
def _said(
    say: Callable[..., Fleet],
    records: tuple[Recorded | None, ...],
    number: int,
    clear: StoreMillis,
    *,
    tick: int,
    watches: int,
) -> tuple[Recorded | None, ...] | None:
    """What the fleet knows after a flusher has said something; None if the member is forgotten then."""
    with ExitStack() as stack:
        for name, value in {"WATCHES": watches, "OVERDUE": 1, "MARGIN": 0, "KEPT": 99}.items():
            stack.enter_context(patch.object(fleet, name, value))
        after = say(_fleet(records), str(number), clear=clear, now=_at(tick))
    if not after.members:
        return None
    known: list[Recorded | None] = []
    for index, one in enumerate(records):
        record = after.flushers.get(str(index)) or after.left.get(str(index))
        if one is None or record is None:
            known.append(None)
            continue
        struck = record.struck // 1000 - _T0 if record.struck else 0
        until, whole = record.until // 1000 - _T0, record.clear >= _at(0)
        known.append(Recorded(one.begun, until, whole, struck, str(index) in after.left))
    return tuple(known)


def _with(state: State, number: int, one: Flusher, **what: int | None) -> State:
    return state._replace(flushers=put(state.flushers, number, one), **what)  # type: ignore[arg-type]


def _plain(one: Flusher, tick: int) -> Flusher:
    """Without what does not matter any more."""
    return one if one.alive and tick - one.sight <= ENOUGH else one._replace(sight=-99)


def _known(state: State, known: tuple[Recorded | None, ...]) -> State:
    flushers = tuple(
        one and record and Flusher(*record, one.alive, one.frozen, one.sight)
        for one, record in zip(state.flushers, known, strict=True)
    )
    return state._replace(flushers=flushers)
