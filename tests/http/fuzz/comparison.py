"""Compares what came of a plan in each way, and makes a plan shorter that shows a difference."""

import re
from typing import Final, NamedTuple

from tests.http.fuzz.plan import AT_ONCE, SETTLE, Plan
from tests.http.fuzz.ways import Outcome, Ways

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE: Final = b"the body did not arrive within"
_TIMES: Final = re.compile(rb'(?<=Retry-After: )\d+|(?<="as_of":")[^"]+|(?<="updated_at":")[^"]+')


class Found(NamedTuple):
    """How the ways differ."""

    said: str
    """Empty if they do not."""
    requests: int
    """Requests that were answered in each of the first two ways."""
    fast: int
    """Those that took the fast path."""


def difference(ways: Ways, plan: Plan) -> Found:
    """Send a plan in all ways. The answers and what was counted must be the same, byte by byte."""
    try:
        return _difference(ways, plan)
    except Exception as error:
        return Found(f"a server failed: {error!r}", 0, 0)


def _difference(ways: Ways, plan: Plan) -> Found:
    short, long = ways.short(plan), ways.long(plan)
    is_late = _LATE in long.told.seen or not long.told.is_open  # by a little, perhaps
    if short.told != long.told and is_late:
        long = ways.longer(plan)
    said = _differs(short, long, "without the fast path") or _fault(short) or _fault(long)
    if not said and plan.is_framed():
        said = _differs(_timeless(short), _timeless(ways.apart(plan)), "each on its own connection")
    return Found(said, long.handled, long.handled - short.handled)


def _differs(short: Outcome, other: Outcome, name: str) -> str:
    if short.told != other.told:
        return f"the answers differ\nfast path: {short.told}\n{name}: {other.told}"
    if short.state != other.state:
        return f"the states differ\nfast path: {short.state}\n{name}: {other.state}"
    return ""


def _fault(outcome: Outcome) -> str:
    if outcome.logged:
        return f"an error was logged: {outcome.logged[0]}"
    return "a request was answered 500" if b"HTTP/1.1 500 " in outcome.told.seen else ""


def _timeless(outcome: Outcome) -> Outcome:
    """Without what depends on when a request came, and on whether its body came with its head."""
    told, state = outcome.told, outcome.state
    return outcome._replace(
        told=told._replace(seen=_TIMES.sub(b"then", told.seen.replace(_CONTINUE, b""))),
        state=state._replace(totals=_TIMES.sub(b"then", state.totals)),
    )


def shrunk(ways: Ways, plan: Plan) -> Plan:
    """A shorter plan that still shows a difference."""
    smaller = True
    while smaller:
        smaller = False
        candidates = [plan.without_request(index) for index in range(len(plan.requests)) if len(plan.requests) > 1]
        candidates += [plan.without_cut(cut) for cut in plan.cuts]
        for candidate in candidates:
            if difference(ways, candidate).said:
                plan, smaller = candidate, True
                break
    return plan


def reproduction(plan: Plan) -> str:
    """The plan as a person reads it."""
    about = f"keys={plan.keys} delay={plan.delay} slow={plan.slow} ends={plan.ends}"
    pauses = {AT_ONCE: "at once", SETTLE: "after the answer"}
    return "\n".join(
        [about, *(f"{piece!r}, then the next one {pauses.get(pause, pause)}" for piece, pause in plan.pieces())]
    )
