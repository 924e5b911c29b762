"""When the fleet is whole, how its records change, and when a member that is gone is forgotten."""

import pytest

from shared.model.buckets import StoreMillis
from shared.model.fleet import (
    KEPT,
    MARGIN,
    OVERDUE,
    REPORTS,
    SILENCE,
    WATCHES,
    Fleet,
    NamedOverlay,
    first,
    leaves,
    read,
    reported,
    written,
)

NOW = StoreMillis(1_800_000_000_000)


def version(fleet: Fleet, number: int) -> Fleet:
    """As a book does."""
    return Fleet(number, fleet.overlay, fleet.members, fleet.flushers)


def test_it_is_whole_when_all_have_joined_the_epoch() -> None:
    fleet = Fleet()
    assert not fleet.whole(), "there is no overlay"
    fleet = version(fleet.names("n1", "i1", "here"), 1)
    assert fleet.whole()
    fleet = version(fleet.owes("a", "t"), 2)
    assert not fleet.whole()
    fleet = version(fleet.joins("a", "t"), 3)
    assert fleet.whole()
    fleet = version(fleet.names("n2", "i2", "here"), 4)
    assert not fleet.whole(), "a new epoch makes all records owe"
    assert fleet.overlay == NamedOverlay(2, "n2", "i2", "here")
    assert fleet.joins("a", "t").whole()
    assert fleet.without("a").whole()


def test_one_that_was_struck_owes_and_is_known_when_it_comes_back() -> None:
    fleet = version(Fleet().names("n", "i", "here").joins("a", "t", "spool"), 1)
    struck = version(fleet.strikes("a", NOW), 2)
    assert struck.apart()["a"].struck == NOW
    assert struck.apart()["a"].spool == "spool"
    back = struck.owes("a", "t", "spool").members["a"]
    assert (back.struck, back.strikes) == (0, 1)
    assert struck.joins("a", "t").members["a"].strikes == 0


def test_a_member_that_opens_a_spool_takes_it_over() -> None:
    fleet = Fleet().owes("old", "t", "spool").owes("other", "t", "else").takes_over({"old"}, StoreMillis(5))
    assert [record.spool for record in fleet.members.values()] == ["", "else"]


def test_one_that_stops_is_not_struck_and_owes_what_it_owed() -> None:
    fleet = version(Fleet().names("n", "i", "here").joins("a", "t").owes("b", "t"), 1).strikes("b", NOW)
    for name in ("a", "b"):
        fleet = fleet.stops(name, NOW, listed=True).strikes(name, NOW)
    assert [*fleet.apart()] == ["b"]
    assert [(one.stopped, one.struck, one.listed) for one in fleet.members.values()] == [(NOW, 0, True)] * 2
    assert not fleet.joins("a", "t").members["a"].gone(), "another process may use the name of its record"


def test_what_is_written_is_read() -> None:
    fleet = Fleet(7).names("n", "i", "p").owes("a", "t", "s").flushes("f", "t", NOW).strikes("a", NOW)
    fleet = leaves(fleet.flushes("g", "t", NOW), "g", clear=NOW, now=NOW).owes("b", "t").stops("b", NOW, listed=True)
    assert read(written(fleet)) == fleet


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
