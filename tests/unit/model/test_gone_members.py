"""Flushers' reports decide when a member that is gone is forgotten."""

import pytest

from shared.model.buckets import StoreMillis
from shared.model.fleet import KEPT, MARGIN, OVERDUE, REPORTS, SILENCE, WATCHES, Fleet, first, leaves, reported

STRUCK = StoreMillis(1_000_000)
MINUTE = 60_000
LAST = StoreMillis(STRUCK + int((SILENCE + MARGIN) * 1000))
"""When a member that was struck has surely published its last."""
ENOUGH = StoreMillis(LAST + int(WATCHES * 1000))


def struck(spool: str = "", *flushers: str) -> Fleet:
    """A member was struck; these flushers are there."""
    fleet = Fleet(version=1)
    for flusher in flushers or ("f",):
        fleet = fleet.flushes(flusher, "t", STRUCK)
    return fleet.owes("gone", "t", spool).strikes("gone", STRUCK)


def stopped(*, listed: bool = False) -> Fleet:
    return Fleet(version=1).flushes("f", "t", STRUCK).owes("gone", "t").stops("gone", STRUCK, listed=listed)


def watched(fleet: Fleet, since: int, until: int, *, clear: int = LAST) -> Fleet:
    """All flushers have said from then until then that they saw nothing older than this."""
    for now in range(since, until + 1, int(REPORTS * 1000)):
        for flusher in [*fleet.flushers]:
            fleet = reported(fleet, flusher, clear=StoreMillis(clear), now=StoreMillis(now))
    return fleet


@pytest.mark.parametrize(
    ("fleet", "clear", "forgotten"),
    [
        (struck(), LAST, ENOUGH),
        (struck("", "f", "g"), LAST, ENOUGH),
        (struck("spool").takes_over({"gone"}, STRUCK), LAST, ENOUGH),
        (struck("spool").takes_over({"gone"}, StoreMillis(STRUCK + MINUTE)), LAST + MINUTE, ENOUGH + MINUTE),
        (first(STRUCK, used=True).flushes("f", "t", STRUCK).flushes("h", "other", STRUCK), LAST, ENOUGH),
        (struck(), LAST - 1, None),
        (struck("spool"), LAST, None),
        (stopped(), STRUCK + MINUTE, STRUCK + MINUTE + int(WATCHES * 1000)),
        (stopped(listed=True), STRUCK + MINUTE, STRUCK + MINUTE + int(WATCHES * 1000)),
        (stopped(), STRUCK, None),
    ],
)
def test_when_a_member_is_forgotten(fleet: Fleet, clear: int, forgotten: int | None) -> None:
    """One that was struck may publish for an hour more, so nobody counts what was seen before; one that stopped not."""
    assert watched(fleet, STRUCK, (forgotten or ENOUGH + 10 * MINUTE) - 1, clear=clear).members
    if forgotten is not None:
        assert not watched(fleet, STRUCK, forgotten + MINUTE, clear=clear).members


def test_one_alone_or_of_another_topic_says_nothing() -> None:
    fleet = struck("", "f", "g")
    assert "gone" in reported(fleet, "f", clear=LAST, now=ENOUGH).members
    other = struck().flushes("h", "other", STRUCK)
    other = leaves(other, "f", clear=LAST, now=STRUCK)
    assert "gone" in watched(other, STRUCK, ENOUGH + MINUTE).members
    assert not other.flushers["h"].struck, "nobody waits for its reports"


def test_a_silent_flusher_holds_it_up_until_it_holds_nothing_any_more() -> None:
    fleet, time = struck("", "f", "g"), LAST
    while "gone" in fleet.members:
        time = StoreMillis(time + int(REPORTS * 1000))
        fleet = reported(fleet, "f", clear=LAST, now=time)
        assert time < LAST + 4 * WATCHES * 1000
    assert time - STRUCK >= (OVERDUE + WATCHES) * 1000
    assert "g" not in fleet.flushers


def test_a_flusher_that_came_long_after_the_strike_is_not_silent_before_it_could_report() -> None:
    """Otherwise the next report of another one strikes it, it comes again, and so on for ever."""
    late = StoreMillis(STRUCK + int(2 * OVERDUE * 1000))
    fleet = struck().flushes("late", "t", late)
    soon, later = StoreMillis(late + MINUTE), StoreMillis(late + int(OVERDUE * 1000) + MINUTE)
    assert not reported(fleet, "f", clear=LAST, now=soon).flushers["late"].struck
    assert reported(fleet, "f", clear=LAST, now=later).flushers["late"].struck
    again = reported(fleet, "f", clear=LAST, now=soon).owes("new", "t").strikes("new", later)
    assert reported(again, "f", clear=LAST, now=later).flushers["late"].struck, "it is silent since the first strike"


def test_what_one_saw_that_stopped_is_kept_for_as_long_as_it_is_of_use() -> None:
    fleet = leaves(struck("", "f", "g"), "g", clear=LAST, now=STRUCK)
    assert [*fleet.left] == ["g"]
    assert not leaves(fleet.without("gone"), "f", clear=LAST, now=STRUCK).left, "nobody is gone"
    assert not leaves(fleet, "f", clear=LAST, now=StoreMillis(STRUCK + int(KEPT * 1000) + 1)).left.keys() & {"g"}
