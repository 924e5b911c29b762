"""One envelope, two copies of it, and flushers of two settings that stand still: it is added once. Time in ticks.

The first copy is published at 0, in vain as far as the ingest knows, and again when its spool forwards it. The broker
may deliver a copy at any time later, as after a seek. A flusher takes a copy, judges, and sends its commit; between any
of these it may stand still for ever so long. Sweeps take every receipt that has expired, at once. Flusher 0 has a short
retention and flusher 1 a long one; either may be the first, or stop. A promise binds receipts for `FORCE` ticks after
it was renewed. See docs/adr/0015.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, put

REACH: Final = (2, 8)
LIFE: Final = (6, 12)
"""Of each setting: `reach` + the longest spool + 1."""
SPOOL: Final = 3
FORCE: Final = 2
END: Final = 14
NEVER: Final = -9
RULES: Final = frozenset({"commit", "smaller", "earliest", "sum", "force"})
"""Each of them is needed: the store judges the commit; the smallest promise judges; it judges by the earliest publish
that a copy may have had; a spool keeps no more than receipts outlive; who commits has a promise that is still in force.
"""


class Flusher(NamedTuple):
    copy: int = -1
    """What it holds: -1 nothing, 0 the first copy, 1 the second."""
    until: int = NEVER
    """How it has judged; `NEVER`: not yet."""


class State(NamedTuple):
    now: int = 0
    second: int = NEVER
    """When the second copy was published."""
    seen: tuple[int, ...] = (NEVER, NEVER)
    """When each promise was renewed."""
    flushers: tuple[Flusher, ...] = (Flusher(), Flusher())
    expires: int = NEVER
    """Of the receipt, while it is there."""
    added: int = 0


class Model(RuledModel):
    rules = RULES

    @staticmethod
    def flaw(state: State) -> str | None:
        return "it is added twice" if state.added > 1 else None

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            gone = s.expires != NEVER and s.expires < s.now + 1
            yield f"time {s.now + 1}", s._replace(now=s.now + 1, expires=NEVER if gone else s.expires)
        if s.second == NEVER and s.now <= SPOOL + 2 * ("sum" not in self._rules):
            yield "the spool forwards it", s._replace(second=s.now)
        for number, one in enumerate(s.flushers):
            for name, after, receipt, added, seen in self._step(s, number, one):
                flushers = put(s.flushers, number, after)
                what = f"flusher {number} {name}"
                yield what, s._replace(flushers=flushers, expires=receipt, added=added, seen=seen)

    def _step(self, s: State, number: int, one: Flusher) -> Iterator[tuple[str, Flusher, int, int, tuple[int, ...]]]:
        if one.copy < 0:
            for copy, published in enumerate((0, s.second)):
                if published != NEVER:
                    yield f"takes copy {copy}", Flusher(copy), s.expires, s.added, s.seen
            return
        published = 0 if one.copy == 0 else s.second
        if one.until == NEVER:
            seen = put(s.seen, number, s.now)
            until = self._until(seen, number, published)
            if s.now > until:
                yield "finds it too old", Flusher(), s.expires, s.added, seen
            else:
                yield "judges", one._replace(until=until), s.expires, s.added, seen
            return
        if "commit" in self._rules and s.now > one.until:
            yield "is refused", Flusher(), s.expires, s.added, s.seen
        elif "force" in self._rules and s.now > s.seen[number] + FORCE:
            yield "is refused, and judges again", one._replace(until=NEVER), s.expires, s.added, s.seen
        elif s.expires != NEVER:
            yield "meets the receipt", Flusher(), s.expires, s.added, s.seen
        else:
            yield "commits", Flusher(), max(published, s.now - FORCE) + self._life(s, number), s.added + 1, s.seen

    def _until(self, seen: tuple[int, ...], number: int, published: int) -> int:
        earliest = published - SPOOL if "earliest" in self._rules else published
        behind = [REACH[other] for other in (0, 1) if seen[other] != NEVER and seen[other] + FORCE >= earliest]
        return published + (min([REACH[number], *behind]) if "smaller" in self._rules else REACH[number])

    def _life(self, s: State, number: int) -> int:
        force = [LIFE[other] for other in (0, 1) if s.seen[other] != NEVER and s.seen[other] + FORCE >= s.now]
        return max([LIFE[number], *force])
