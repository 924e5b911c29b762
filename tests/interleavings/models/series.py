"""One counter, two flushers, of which one may follow no rules, and a reader: points that are said to be exact are.

Time is in ticks, each of them a period. A sweep's clock may be a tick ahead. An increment is created at a tick, is
pending, and is applied by a commit of either flusher: one that follows the rule adds it to its bucket, too. A sweep
takes a bucket that has expired. A reading adds the bucket and what is pending of its period, and is exact of periods
that begin when all commits already followed the rule, and that are not past their retention. See docs/adr/0023.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel

END: Final = 4
RETENTION: Final = 1
SPARE: Final = 1
MOST: Final = 1
"""Increments of a period."""
RULES: Final = frozenset({"same commit", "created", "since", "retention", "spare"})
"""Each of them is needed: a bucket changes in the commit of the total; it is that of the increment, not of the commit;
what is whole begins anew when rules change; what is past its retention is not shown; rows live for longer than that.
"""


class State(NamedTuple):
    now: int = 0
    accepted: tuple[int, ...] = (0,) * (END + 1)
    """Of each period, for ever."""
    pending: tuple[int, ...] = (0,) * (END + 1)
    bucket: tuple[int, ...] = (0,) * (END + 1)
    expires: tuple[int, ...] = (0,) * (END + 1)
    follows: bool = True
    """Whether the last commit followed the rule."""
    since: int = 0
    owed: tuple[int, ...] = ()
    """Periods of increments whose bucket a second commit would add: only without "same commit"."""


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            yield f"time {s.now + 1}", s._replace(now=s.now + 1)
        if s.accepted[s.now] < MOST:
            more = s._replace(accepted=_plus(s.accepted, s.now), pending=_plus(s.pending, s.now))
            yield f"an increment is accepted at {s.now}", more
        for period, waits in enumerate(s.pending):
            if waits:
                yield f"a flusher with the rule applies one of {period}", self._applied(s, period)
                without = s._replace(pending=_plus(s.pending, period, -1), follows=False)
                yield f"a flusher without rules applies one of {period}", without
        for period, count in enumerate(s.bucket):
            if count and s.expires[period] < s.now + 1:
                yield f"the sweep takes {period}", s._replace(bucket=_plus(s.bucket, period, -count))
        for place, period in enumerate(s.owed):
            yield (
                f"the second commit adds one of {period}",
                self._added(s, period)._replace(owed=s.owed[:place] + s.owed[place + 1 :]),
            )

    def _applied(self, s: State, period: int) -> State:
        after = s._replace(pending=_plus(s.pending, period, -1), follows=True)
        if "since" in self._rules and not s.follows:
            after = after._replace(since=s.now + 1)
        if "same commit" not in self._rules:
            return after._replace(owed=tuple(sorted((*s.owed, period))))
        return self._added(after, period)

    def _added(self, s: State, period: int) -> State:
        where = period if "created" in self._rules else s.now
        lives = where + RETENTION + SPARE * ("spare" in self._rules)
        expires = tuple([max(one, lives) if at == where else one for at, one in enumerate(s.expires)])
        return s._replace(bucket=_plus(s.bucket, where), expires=expires)

    def flaw(self, s: State) -> str | None:
        """What a reading at this instant would say wrongly, and call exact."""
        if not s.follows and "since" in self._rules:
            return None  # no point is exact then
        for period in range(s.now + 1):
            if period < s.since or ("retention" in self._rules and period < s.now - RETENTION):
                continue
            if s.bucket[period] + s.pending[period] != s.accepted[period]:
                return "a point is wrong"
        return None


def _plus(counts: tuple[int, ...], place: int, more: int = 1) -> tuple[int, ...]:
    return tuple([one + more * (at == place) for at, one in enumerate(counts)])
