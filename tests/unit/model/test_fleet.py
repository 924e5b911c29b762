"""When the fleet is whole, and how its records change."""

from shared.model.fleet import SILENCE, Fleet, NamedOverlay, first, read, written
from shared.model.gone_members import OVERDUE, REPORTS, WATCHES, horizon, reported
from shared.model.times import StoreMillis

NOW = StoreMillis(1_800_000_000_000)
STRUCK = StoreMillis(NOW)
PUBLISHED = StoreMillis(STRUCK + int(SILENCE * 1000) + 60_000)
"""When the member has surely published its last."""
LATER = StoreMillis(PUBLISHED + 1_000)


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


def test_what_was_in_the_spool_of_one_that_is_gone_may_have_been_published_until_it_was_taken_over() -> None:
    begun = StoreMillis(LATER + int(SILENCE * 1000))
    enough = StoreMillis(begun + int(WATCHES * 1000))
    assert "a" not in both(gone(spool="s").takes_over({"a"}, STRUCK), begun, enough).members
    assert "a" in both(gone(spool="s").takes_over({"a"}, LATER), begun, enough).members
    assert (
        "a"
        not in both(gone(spool="s").takes_over({"a"}, LATER), begun, StoreMillis(enough + 60_000), clear=enough).members
    )


def test_what_is_written_is_read() -> None:
    fleet = Fleet(7).names("n", "i", "p").owes("a", "t", "s").flushes("f", "t", NOW).strikes("a", NOW)
    assert read(written(fleet)) == fleet


def gone(spool: str = "") -> Fleet:
    """A member was struck; two flushers are there."""
    fleet = Fleet(1).names("n", "i", "p").owes("a", "t", spool).strikes("a", STRUCK)
    return fleet.flushes("f", "t", STRUCK).flushes("g", "t", STRUCK)


def both(fleet: Fleet, begun: StoreMillis, until: StoreMillis, *, clear: StoreMillis = PUBLISHED) -> Fleet:
    for name in ("f", "g"):
        fleet = reported(fleet, name, clear=clear, begun=begun, now=until)
    return fleet


def test_a_member_is_forgotten_when_all_have_seen_nothing_old_for_long_enough() -> None:
    assert horizon(gone(), "t") == PUBLISHED
    assert horizon(gone(), "other") == 0
    enough = StoreMillis(LATER + int(WATCHES * 1000))
    assert "a" not in both(gone(), LATER, enough).members
    assert "a" in both(gone(), LATER, StoreMillis(enough - 1)).members
    assert "a" in both(gone(), LATER, enough, clear=StoreMillis(PUBLISHED - 1)).members
    assert "a" in reported(gone(), "f", clear=PUBLISHED, begun=LATER, now=enough).members, "one says nothing"
    assert "a" in both(gone(spool="s"), LATER, enough).members, "its rows are in a file"


def test_a_flusher_of_another_topic_says_nothing() -> None:
    fleet = gone().without_flusher("f").without_flusher("g").flushes("h", "other", STRUCK)
    enough = StoreMillis(LATER + int(WATCHES * 1000))
    assert "a" in reported(fleet, "h", clear=PUBLISHED, begun=LATER, now=enough).members


def test_an_older_version_is_forgotten_when_all_flushers_agree() -> None:
    fleet = first(STRUCK, used=True).flushes("f", "t", STRUCK).flushes("h", "other", STRUCK)
    enough = StoreMillis(LATER + int(WATCHES * 1000))
    fleet = reported(fleet, "f", clear=PUBLISHED, begun=LATER, now=enough)
    assert fleet.members
    assert not reported(fleet, "h", clear=PUBLISHED, begun=LATER, now=enough).members


def test_a_silent_flusher_holds_it_up_until_it_holds_nothing_any_more() -> None:
    fleet = gone()
    time, begun = LATER, LATER
    ends = 0
    while "a" in fleet.members:
        time = StoreMillis(time + int(REPORTS * 1000))
        fleet = reported(fleet, "f", clear=PUBLISHED, begun=begun, now=time)
        ends = time
        assert ends < LATER + 4 * WATCHES * 1000
    assert ends - STRUCK >= (OVERDUE + WATCHES) * 1000
    assert "g" not in fleet.flushers
