"""One envelope that may become a dead letter, a flusher, and two replays that stand still: it is added once. Time in
ticks.

The envelope is published at 0, and once more at 1 by a spool. The broker may deliver each copy at any time, as after a
lost acknowledgement. The receipt is dead with a body, if a copy was given up in time; dead and bare, if the copy came
too late; or applied. One that is bare or applied expires. A replay looks at the receipt, judges, and commits. It may
stand still between, and so may a flusher that found a bare receipt and writes a body to it. The store may refuse any
commit for its content. See docs/adr/0007.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, put

REACH: Final = 3
LIFE: Final = 5
"""More than `REACH` and the time in the spool together, and less than twice `REACH`, as in life."""
FORCE: Final = 2
"""More than what a receipt outlives a copy that a spool forwards, as in life."""
END: Final = 13
EVER: Final = 99
COPIES: Final = (0, 1)
RULES: Final = frozenset({"bare", "until", "renewal"})
"""Each of them is needed: a bare receipt proves nothing, so age decides; a replay commits soon after its look, before
another receipt can have come and expired; a body is written only in time.
"""
NONE: Final = "none"
DEAD: Final = "dead"
BARE: Final = "bare"
APPLIED: Final = "applied"


class Replay(NamedTuple):
    saw: str = ""
    until: int = 0
    looked: int = 0
    """It dates its receipt by this."""


class State(NamedTuple):
    now: int = 0
    receipt: str = NONE
    expires: int = EVER
    replays: tuple[Replay, ...] = (Replay(), Replay())
    judged: int = 0
    """Until when its commits may come, if the flusher has judged a copy in time."""
    renews: int = 0
    """Until when it may write a body, if it has found a bare receipt then."""
    added: int = 0


class Model(RuledModel):
    rules = RULES

    @staticmethod
    def flaw(s: State) -> str | None:
        return "it is added twice" if s.added > 1 else None

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            after = s._replace(now=s.now + 1)
            yield f"time {after.now}", _with(after, NONE) if s.expires < after.now else after
        yield from self._flusher(s)
        for number, one in enumerate(s.replays):
            for what, after, its in self._replay(s, one):
                yield f"replay {number} {what}", after._replace(replays=put(s.replays, number, its))

    def _flusher(self, s: State) -> Iterator[tuple[str, State]]:
        for copy in COPIES:
            late = s.now > copy + REACH
            if s.now < copy:
                continue
            if s.receipt == NONE and late:
                yield f"copy {copy} is given up for its age", _with(s, BARE)
            elif s.receipt == NONE:
                yield f"copy {copy} is applied", _with(s, APPLIED, added=1)
                yield f"copy {copy} is refused, and given up", _with(s, DEAD)
            if not late:
                until = copy + REACH if "renewal" in self._rules else s.now + FORCE
                yield f"the flusher judges copy {copy}", s._replace(judged=until)
        if s.judged and s.receipt == BARE:
            yield "the flusher finds a bare receipt", s._replace(renews=s.judged, judged=0)
        if s.renews and s.now > s.renews:
            yield "the flusher is too late to write a body", s._replace(renews=0)
        elif s.renews:
            dead = s.receipt in {DEAD, BARE}
            yield "the flusher writes a body", (_with(s, DEAD) if dead else s)._replace(renews=0)

    def _replay(self, s: State, one: Replay) -> Iterator[tuple[str, State, Replay]]:
        if not one.saw:
            holds = s.now + FORCE if "until" in self._rules else EVER
            if s.receipt == DEAD or (s.receipt == BARE and "bare" not in self._rules):
                yield "sees that it is dead", s, Replay(s.receipt, holds, s.now)
            elif s.receipt != APPLIED:
                for copy in COPIES:
                    until = min(copy + REACH, holds)
                    yield f"has copy {copy}, of which nothing is proved", s, Replay(s.receipt, until, s.now)
        elif s.now > one.until:
            yield "is too late", s, Replay()
        elif (s.receipt == NONE) == (one.saw == NONE) and s.receipt != APPLIED:
            yield "applies it", _with(s, APPLIED, added=1)._replace(expires=one.looked + LIFE), Replay()
            yield "is refused for its content", _with(s, DEAD), Replay()
        else:
            yield "finds another receipt", s, Replay()


def _with(s: State, receipt: str, added: int = 0) -> State:
    lives = receipt in {BARE, APPLIED}
    return s._replace(receipt=receipt, expires=s.now + LIFE if lives else EVER, added=s.added + added)
