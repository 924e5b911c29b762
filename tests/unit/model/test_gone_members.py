"""Flushers' reports decide when a dead member is forgotten."""

from shared.model.fleet import SILENCE, Fleet
from shared.model.gone_members import OVERDUE, REPORTS, WATCHES, horizon, reported
from shared.model.times import StoreMillis

STRUCK = StoreMillis(1_000_000)
MINUTE = 60_000


def struck() -> Fleet:
    return Fleet(version=1).flushes("f", "t", STRUCK).owes("gone", "t").strikes("gone", STRUCK)


def watched(fleet: Fleet, since: StoreMillis, until: int) -> Fleet:
    """The flusher has seen nothing old from then until then, and has said so all the time."""
    clear = horizon(fleet, "t")
    for now in range(since, until + 1, int(REPORTS * 1000)):
        fleet = reported(fleet, "f", clear=clear, begun=since, now=StoreMillis(now))
    return fleet


def test_a_member_may_publish_for_an_hour_after_it_was_struck_so_nobody_counts_what_was_seen_before() -> None:
    """It may be cut off from the store alone, and have had nothing to publish until now."""
    last = STRUCK + int(SILENCE * 1000) + MINUTE
    assert "gone" in watched(struck(), STRUCK, last + int(WATCHES * 1000) - MINUTE).members


def test_it_is_forgotten_when_nothing_old_has_come_for_long_enough_after_that() -> None:
    last = STRUCK + int(SILENCE * 1000) + MINUTE
    assert "gone" not in watched(struck(), STRUCK, last + int(WATCHES * 1000) + MINUTE).members


def test_a_gap_begins_the_wait_anew() -> None:
    last = STRUCK + int(SILENCE * 1000) + MINUTE
    end = last + int(WATCHES * 1000) + MINUTE
    late = StoreMillis(last + int(OVERDUE * 1000) // 2)
    assert "gone" in watched(struck(), late, end).members


def test_a_flusher_that_came_long_after_the_strike_is_not_silent_before_it_could_report() -> None:
    """Otherwise the next report of another one strikes it, it comes again, and so on for ever."""
    late = StoreMillis(STRUCK + int(2 * OVERDUE * 1000))
    fleet = struck().flushes("late", "t", late)
    fleet = reported(fleet, "f", clear=horizon(fleet, "t"), begun=STRUCK, now=StoreMillis(late + MINUTE))
    assert not fleet.flushers["late"].struck


def test_a_flusher_that_never_reports_is_taken_for_dead() -> None:
    late = StoreMillis(STRUCK + int(2 * OVERDUE * 1000))
    fleet = struck().flushes("late", "t", late)
    fleet = reported(
        fleet, "f", clear=horizon(fleet, "t"), begun=STRUCK, now=StoreMillis(late + int(OVERDUE * 1000) + MINUTE)
    )
    assert fleet.flushers["late"].struck
