"""Increments that any clock dates, flushers of which some follow no rules, and a reader: an exact total of a period is
final, once that is over.

Time is in ticks, each of them a period, and the clock may be set back once. An increment has any date at all. It is
published at some time, is pending for readers from then on, or later, or never, and is applied once, by a commit of a
flusher that follows the rule or of one that follows none. A reader asks for all periods that are over. See
docs/adr/0030.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.interleavings.models.explore import RuledModel, put

END: Final = 2
RULES: Final = frozenset({"close", "inside", "again", "shown", "never lowered", "latest", "present"})
"""Each of them is needed: who says exact has closed the periods; a commit looks at what is closed in its transaction;
the reader looks again after it has closed them; what is pending is shown where it will be added; what is closed stays
closed when a clock is set back; rules that end were followed until the latest date of all commits; and nothing is dated
after the present.
"""


class One(NamedTuple):
    """An increment."""

    date: int = -1
    state: str = "none"
    """`none`, `published`, `pending` or `applied`."""
    held: int = -1
    """What a flusher that holds it has seen of what is closed; only without "inside"."""
    where: int = -1
    """Its period, once it is applied."""


class State(NamedTuple):
    now: int = 0
    was_set_back: bool = False
    latest: int = 0
    """No commit has dated anything later."""
    closed: int = 0
    """All periods before it are closed."""
    since: int = 0
    """The first period since which all commits have followed the rule."""
    ones: tuple[One, ...] = (One(),)
    lacks: tuple[bool, ...] = (False,) * (END + 1)
    """Of each period, whether something was applied that its bucket lacks."""
    look: tuple[int, int, tuple[int, ...]] | None = None
    """Until when a reader is about to close, and what it saw: `since`, and the count of each period."""
    said: tuple[int, ...] = (-1,) * (END + 1)
    """What an exact answer said of each period."""
    wrong: str = ""


class Model(RuledModel):
    rules = RULES

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.now < END:
            yield f"time {s.now + 1}", s._replace(now=s.now + 1)
        if s.now and not s.was_set_back:
            yield "the clock is set back", s._replace(now=s.now - 1, was_set_back=True)
        for number, one in enumerate(s.ones):
            if one.state == "none":
                for date in range(END + 1) if not number or s.ones[number - 1].state != "none" else ():
                    yield f"{number} is published, of {date}", _with(s, number, One(date, "published"))
            elif one.state != "applied":
                if one.state == "published":
                    yield f"{number} is pending", _with(s, number, one._replace(state="pending"))
                yield from self._flush(s, number, one)
        if s.closed < s.now:
            yield "another reader closes", s._replace(closed=s.now)
        yield from self._read(s)

    def _flush(self, s: State, number: int, one: One) -> Iterator[tuple[str, State]]:
        if "inside" not in self._rules and one.held < 0:
            yield f"a flusher takes {number}", _with(s, number, one._replace(held=s.closed))
            return
        latest = max(s.latest, s.now, s.closed)
        where = self._dated(s, one.date, s.closed if "inside" in self._rules else one.held)
        after = _with(s, number, One(one.date, "applied", where=where))._replace(latest=latest)
        yield f"{number} is applied", after
        until = latest if "latest" in self._rules else s.now
        lacks = tuple([lack or place == where for place, lack in enumerate(s.lacks)])
        without = after._replace(since=max(s.since, until + 1), lacks=lacks)
        yield f"{number} is applied without the rule", _with(without, number, One(one.date, "applied"))

    def _dated(self, s: State, date: int, closed: int) -> int:
        latest = max(s.latest, s.now) if "present" in self._rules else END
        return min(max(min(date, latest), closed), END)

    def _read(self, s: State) -> Iterator[tuple[str, State]]:
        if s.look is not None:
            until, since, seen = s.look
            closed = max(s.closed, until) if "never lowered" in self._rules else until
            after = s._replace(closed=closed, look=None)
            yield "it closes", after if "again" in self._rules else _answer(after, until, since, seen)
        counts = [sum(one.where == period for one in s.ones) for period in range(END + 1)]
        waits = False
        for one in s.ones:
            if one.state == "pending":
                shown = self._dated(s, one.date, s.closed) if "shown" in self._rules else one.date
                counts[shown] += 1
                waits = waits or shown < s.now
        if s.closed >= s.now or "close" not in self._rules:
            yield "a reader answers", _answer(s, s.now, s.since, tuple(counts))
        elif not waits and s.look is None:
            yield "a reader looks", s._replace(look=(s.now, s.since, tuple(counts)))

    @staticmethod
    def flaw(s: State) -> str | None:
        return s.wrong or None


def _with(s: State, number: int, one: One) -> State:
    return s._replace(ones=put(s.ones, number, one))


def _answer(s: State, until: int, since: int, counts: tuple[int, ...]) -> State:
    """Say all periods that are over and whole, exactly."""
    said, wrong = list(s.said), s.wrong
    for period in range(since, until):
        if s.lacks[period]:
            wrong = "a period that was not kept is said to be exact"
        if said[period] not in {-1, counts[period]}:
            wrong = "an exact total of a period that is over has changed"
        said[period] = counts[period]
    return s._replace(said=tuple(said), wrong=wrong)
