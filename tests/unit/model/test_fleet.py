"""When the fleet is whole, and how its records change."""

from shared.model.buckets import StoreMillis
from shared.model.fleet import Fleet, NamedOverlay, leaves, read, written

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
