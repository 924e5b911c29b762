"""The pure parts of the Redis overlay: leases, evidence, entries, the copy, and its cache of views."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import OverloadedError, SettingsError
from shared.parts import parts_of
from shared.receipts import key_of_envelope
from shared.redis.copy import FIRST_LOOK, Copy
from shared.redis.entries import MOST_IN_ONE_STEP, Piece, in_steps, pieces_of
from shared.redis.evidence import Evidence
from shared.redis.lease import MARGIN, Lease
from shared.redis.links import Links
from shared.redis.views import MOST, Views
from shared.urls import redis, shown
from shared.words import Envelope, View

NOW = 1_800_000_000_000


def envelope(name: str, *counters: str) -> Envelope:
    return Envelope(name, dict.fromkeys(counters or ("a",), 1))


@given(
    st.lists(st.tuples(st.floats(0.001, 2), st.floats(0, 2), st.booleans()), min_size=1, max_size=20),
    st.floats(-0.005, 0.005),
)
def test_a_lease_is_over_only_when_it_is_over_there(requests: list[tuple[float, float, bool]], drift: float) -> None:
    """Whatever is late or lost on the way, and though the two clocks drift."""
    here, granted = 100.0, 0
    lease = Lease(3.0)

    def there(at: float) -> int:
        return NOW + int(at * 1000 * (1 + drift))

    lease.hear(there(here), here)
    for pause, delay, answered in requests:
        here += pause
        granted = max(granted, lease.ask(here))
        if answered:
            heard = there(here + delay)
            here += 2 * delay
            lease.hear(heard, here)
    over = here + lease.over(here)
    assert there(over) >= granted
    assert lease.over(over + 0.001) == 0
    assert over - here <= 3.0 * 1.01 + MARGIN + 2 * 0.005 * here + 2.1


def test_a_lease_that_was_never_asked_for_is_over() -> None:
    assert Lease(3.0).over(5.0) == 0


def test_a_refused_request_makes_nothing_longer() -> None:
    lease = Lease(3.0)
    lease.hear(NOW, 10.0)
    before = lease.until
    lease.ask(10.0)
    assert lease.over(10.0) > 2.9
    lease.refused(before)
    assert lease.over(10.0) == 0


def test_evidence_is_the_oldest_within_the_window() -> None:
    evidence = Evidence(10.0)
    assert evidence.report(0.0) is None
    evidence.pulled(500, 0.0)
    evidence.pulled(900, 1.0)
    assert evidence.report(1.0) == (1_000, 500)
    for second in range(2, 12):
        evidence.pulled(1_000, float(second))
    assert evidence.report(11.0) == (11_000, 900)
    assert evidence.report(12.5) == (12_500, 1_000)
    evidence.pulled(100, 13.0)
    assert evidence.report(13.0) == (13_000, 100)


def test_a_flusher_that_is_silent_vouches_for_nothing_and_begins_anew() -> None:
    """It is heard all the same: it may hold what is old, and does not pull since its window is full."""
    evidence = Evidence(10.0)
    evidence.pulled(500, 0.0)
    assert evidence.report(30.0) == (0, 500)
    evidence.pulled(700, 30.0)
    assert evidence.report(31.0) == (1_000, 700)


@given(st.lists(st.integers(1, 3 * MOST_IN_ONE_STEP), max_size=20))
def test_steps_hold_everything_and_little_at_a_time(sizes: list[int]) -> None:
    pieces = [Piece(str(number), "a", b"", size) for number, size in enumerate(sizes)]
    steps = [*in_steps(pieces)]
    assert [piece for step in steps for piece in step] == pieces
    assert all(len(step) == 1 or sum(piece.counters for piece in step) <= MOST_IN_ONE_STEP for step in steps)


def test_attempts_of_one_envelope_have_names_of_their_own() -> None:
    large = envelope("large", *(f"n{number}" for number in range(2_500)))
    pieces = [*pieces_of(large, "one"), *pieces_of(large, "two")]
    assert len({(piece.key, piece.attempt) for piece in pieces}) == len(pieces) == 2 * len([*parts_of(large)])


def test_the_copy_takes_no_more_than_it_may() -> None:
    copy = Copy(3)
    attempts = copy.add([envelope("e1", "a", "b"), envelope("e2", "a")], 0.0)
    with pytest.raises(OverloadedError):
        copy.add([envelope("e3")], 0.0)
    copy.withdraw(attempts[0])
    copy.add([envelope("e3")], 0.0)
    assert copy.holds([key_of_envelope(name) for name in ("e1", "e2", "e3")]) == {
        key_of_envelope("e2"),
        key_of_envelope("e3"),
    }


def test_only_confirmed_ones_are_written_again_and_looked_at() -> None:
    copy = Copy(100)
    one, _ = copy.add([envelope("e1"), envelope("e2")], 0.0)
    copy.confirm(one)
    assert copy.confirmed() == [one]
    assert copy.due(FIRST_LOOK - 0.1, 10) == []
    assert copy.due(FIRST_LOOK, 10) == [one]
    assert copy.due(FIRST_LOOK + 1, 10) == []
    assert copy.due(3 * FIRST_LOOK, 10) == [one]


def test_one_that_comes_back_after_it_was_settled_is_late_and_goes_again() -> None:
    copy = Copy(100)
    (one,) = copy.add([envelope("e1")], 0.0)
    copy.settle([key_of_envelope("e1")], 7)
    copy.confirm(one)
    (entry,) = copy.view(["a"])["a"].entries
    assert entry.late
    assert entry.confirmed
    assert copy.due(FIRST_LOOK, 10) == [one], "once, though it has been there twice"
    copy.gone([one, one], 9)
    assert copy.entries == 0
    assert copy.floor == 9
    assert copy.view(["a"])["a"].entries == ()


def test_one_that_is_confirmed_without_redis_is_late() -> None:
    copy = Copy(100)
    (one,) = copy.add([envelope("e1")], 0.0)
    copy.confirm(one, late=True)
    (entry,) = copy.view(["a"])["a"].entries
    assert (entry.late, entry.confirmed) == (True, True)
    assert copy.entries == 1


def test_a_view_is_another_one_when_anything_of_it_changes() -> None:
    views, counters = Views(), ["a", "never"]
    fields = b"\n".join([b"v", b"5", b"f", b"3", b"ex", b"1 10 ekey 4"])

    def look(found: object, epoch: bytes = b"e/0", whole: int = 1, floor: bytes = b"0") -> tuple[int, int]:
        answered = views.answer(views.question(counters), [b"ok", epoch, whole, floor, found, b""], exact=True)
        return answered["a"].version, answered["never"].version

    first = look(fields)
    assert [*views.question(counters).arguments()] == [b"e", "a", b"5", "never", b""]
    assert look(b"5") == first
    seen = {first, look(b"5", whole=0), look(b"5", floor=b"9"), look(b"5", epoch=b"e/1"), look(fields, epoch=b"f/1")}
    assert len({one for one, _ in seen}) == len({two for _, two in seen}) == 5
    assert [*views.question(counters).arguments()] == [b"f", "a", b"5", "never", b""]
    assert views.answer(views.question(["a"]), [b"ok", b"f/1", 1, b"9", b"5"], exact=False)["a"].floor == 9
    assert not views.answer(views.question(["a"]), [b"ok", b"f/1", 1, b"9", b"5"], exact=False)["a"].exact


def test_an_answer_comes_after_the_cache_has_forgotten_what_was_asked_with() -> None:
    views = Views()
    fields = b"\n".join([b"v", b"5", b"f", b"3", b"ex", b"1 10 ekey 4"])

    def learn(name: str, found: bytes) -> View:
        return views.answer(views.question([name]), [b"ok", b"e/0", 1, b"0", found], exact=True)[name]

    first = learn("a", fields)
    asked = views.question(["a"])
    for number in range(MOST + 1):
        learn(f"b{number}", fields)
    assert views.question(["a"]).known == {}
    assert views.answer(asked, [b"ok", b"e/0", 1, b"0", b"5"], exact=True)["a"] is first
    again, asked = learn("a", fields), views.question(["a"])
    learn("a", b"")  # it was removed a moment later, and that answer was the first to come
    assert views.answer(asked, [b"ok", b"e/0", 1, b"0", b"5"], exact=True)["a"] is again


@pytest.mark.parametrize(
    "url", ["redis://h:1/0", "rediss://h", "valkey://h:6379/2", "valkeys://h", "unix:///run/r.sock"]
)
async def test_urls(url: str) -> None:
    redis("OVERLAY", url)
    await Links(url).close()


@pytest.mark.parametrize(
    "url",
    ["http://h", "redis:h", "redis://", "redis://:secret@h:port", "redis://me:secret@h/name", "redis://[h", "unix://"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^OVERLAY='.*': must be memory:// or redis://HOST") as refused:
        redis("OVERLAY", url)
    assert "secret" not in str(refused.value)


async def test_options_that_nobody_knows_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^redis://h: .*colour") as refused:
        Links("redis://:secret@h?colour=red")
    assert "secret" not in str(refused.value)


def test_no_password_is_shown() -> None:
    assert shown("redis://me:secret@h:1/2?password=secret") == "redis://h:1/2"
