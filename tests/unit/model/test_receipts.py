"""How long receipts live, until when envelopes may be applied, and what the notes of receipts say."""

from hypothesis import example, given
from hypothesis import strategies as st

from shared.model.buckets import DAY, HOUR, NEVER, BrokerMillis, Millis, StoreMillis
from shared.model.receipts import (
    CLIENT_IDS_REMEMBERED,
    FORCE,
    MOST_SUMS,
    RENEWED,
    Ages,
    Promise,
    Promises,
    Tally,
    ages,
    notes_of_commit,
    promised,
    read_note,
)
from shared.model.words import SHARD_FULL

WEEK = promised(Millis(7 * DAY), DAY)
MONTH = promised(Millis(31 * DAY), DAY)


def waits(promises: Promises, taken: int, waited: int) -> int:
    """For how long of that time a spool keeps what it forwards then."""
    low, high = 0, waited + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken >= promises.oldest_spooled(StoreMillis(taken + middle)) else (low, middle)
    return low


def test_a_promise_that_was_given_up_before_does_not_shorten_a_spool() -> None:
    now = StoreMillis(100 * DAY)
    long, short = promised(Millis(7 * DAY), Millis(3 * DAY)), promised(Millis(7 * DAY), Millis(0))
    assert waits(Promises(long, [short._replace(seen=now)]), now, 3 * DAY) == short.life - short.reach - HOUR
    assert waits(Promises(long, [short._replace(seen=StoreMillis(now - DAY))]), now, 3 * DAY) == 3 * DAY


def test_a_receipt_outlives_the_sum_of_what_a_spool_and_the_broker_keep() -> None:
    for spool in (0, DAY, 31 * DAY):
        ours = promised(Millis(7 * DAY), Millis(spool))
        assert ours.reach >= 7 * DAY
        assert ours.life >= ours.reach + spool + HOUR
        assert waits(Promises(ours), 100 * DAY, spool) == spool


def test_what_is_healthy_is_never_too_old() -> None:
    """Pub/Sub may deliver it for as long as it keeps it, and clocks of two services of Google agree to an hour."""
    published = BrokerMillis(100 * DAY)
    assert Promises(WEEK).until(published) >= published + 7 * DAY + HOUR


def test_a_receipt_of_a_clients_id_lives_eight_days_longer() -> None:
    one = Promises(WEEK)
    assert (
        one.expires(StoreMillis(5), of_client=True)
        == one.expires(StoreMillis(5), of_client=False) + CLIENT_IDS_REMEMBERED
    )


def test_after_a_raise_the_smaller_promise_judges_what_was_published_under_it() -> None:
    raised = StoreMillis(100 * DAY)
    after = Promises(MONTH, [WEEK._replace(seen=raised), MONTH._replace(seen=StoreMillis(raised + DAY))])
    assert after.until(BrokerMillis(raised - DAY)) == raised - DAY + WEEK.reach
    later = BrokerMillis(raised + FORCE + CLIENT_IDS_REMEMBERED + MONTH.life - MONTH.reach + 1)
    assert after.until(later) == later + MONTH.reach


def test_after_a_lowering_receipts_go_on_to_live_by_the_greater_while_a_flusher_may_have_it() -> None:
    lowered = StoreMillis(100 * DAY)
    after = Promises(WEEK, [MONTH._replace(seen=lowered), WEEK._replace(seen=StoreMillis(lowered + HOUR))])
    assert after.until(BrokerMillis(lowered)) == lowered + WEEK.reach
    assert after.expires(StoreMillis(lowered + FORCE), of_client=False) == lowered + FORCE + MONTH.life
    assert after.expires(StoreMillis(lowered + FORCE + 1), of_client=False) == lowered + FORCE + 1 + WEEK.life


def test_a_promise_is_renewed_before_it_is_an_hour_old_and_not_oftener() -> None:
    now = StoreMillis(100 * DAY)
    assert Promises(WEEK).renew(now) == WEEK._replace(seen=now)
    kept = Promises(WEEK, [WEEK._replace(seen=now)])
    assert kept.renew(StoreMillis(now + RENEWED - 1)) is None
    assert kept.renew(StoreMillis(now + RENEWED)) == WEEK._replace(seen=StoreMillis(now + RENEWED))


def test_a_promise_that_is_smaller_than_one_in_force_need_not_be_made() -> None:
    now = StoreMillis(100 * DAY)
    assert Promises(WEEK, [MONTH._replace(seen=now)]).renew(StoreMillis(now + 1)) is None
    assert Promises(MONTH, [WEEK._replace(seen=now)]).renew(StoreMillis(now + 1)) == MONTH._replace(
        seen=StoreMillis(now + 1)
    )
    assert Promises(WEEK, [MONTH._replace(seen=now)]).renew(StoreMillis(now + RENEWED)) == WEEK._replace(
        seen=StoreMillis(now + RENEWED)
    )


SETTINGS = st.builds(promised, st.integers(0, 31).map(lambda n: 600_000 + n * DAY), st.integers(0, 5).map(DAY.__mul__))


@given(
    one=SETTINGS,
    other=SETTINGS,
    early=st.integers(0, 40).map(DAY.__mul__),
    waited=st.integers(0, 6 * 24).map(HOUR.__mul__),
    stale=st.integers(0, RENEWED),
)
def test_whatever_the_settings_a_copy_is_judged_while_the_receipt_is_there(
    one: Promise, other: Promise, early: int, waited: int, stale: int
) -> None:
    """The first copy is applied under `one`, which ends then; the second, which lay in a spool, comes under `other`."""
    first = 1_000 * DAY
    applied = first + min(early, one.reach)
    kept = one._replace(seen=StoreMillis(applied - stale))
    expires = Promises(kept).expires(StoreMillis(max(applied, first)), of_client=False)
    judge = Promises(other, [kept])
    second = BrokerMillis(first + waits(judge, first, waited))
    assert judge.until(second) < expires


SHORT = promised(Millis(600_000), Millis(60_000))
NOW = StoreMillis(1_000 * DAY)


def test_without_a_promise_no_entry_is_too_old() -> None:
    assert ages([], NOW) == Ages(NEVER, NEVER)


def test_what_a_spool_and_the_broker_may_still_deliver_is_not_in_doubt() -> None:
    for one in (SHORT, WEEK, MONTH):
        longest = waits(Promises(one), NOW, 100 * DAY) + one.reach
        assert ages([one._replace(seen=NOW)], NOW).unsure <= NOW - longest


def test_an_entry_is_unsure_before_it_is_over() -> None:
    both = [SHORT._replace(seen=NOW), MONTH._replace(seen=NOW)]
    assert ages(both, NOW) == Ages(StoreMillis(NOW - MONTH.life - HOUR), StoreMillis(NOW - SHORT.life + HOUR))


def test_nothing_is_over_that_no_promise_binds() -> None:
    """The next flusher may have any settings."""
    gone = StoreMillis(NOW - 30 * DAY)
    assert ages([SHORT._replace(seen=gone)], NOW).over == gone + FORCE


@given(
    before=SETTINGS,
    after=SETTINGS,
    spool=SETTINGS,
    seen=st.integers(0, 80).map(DAY.__mul__),
    waited=st.integers(0, 6 * 24).map(HOUR.__mul__),
    age=st.integers(0, 80 * 24).map(HOUR.__mul__),
)
@example(
    before=promised(Millis(600_000), Millis(5 * DAY)),
    after=promised(Millis(31 * DAY), Millis(0)),
    spool=WEEK,
    seen=60 * DAY,
    waited=5 * DAY,
    age=33 * DAY,
)
def test_whatever_the_next_flushers_settings_it_applies_nothing_that_is_over(
    *, before: Promise, after: Promise, spool: Promise, seen: int, waited: int, age: int
) -> None:
    """A spool forwarded it by the promise that was there; the next flusher judges it, known by now or not yet."""
    kept = before._replace(seen=StoreMillis(NOW - seen))
    published = NOW - age
    second = BrokerMillis(published + waits(Promises(spool, [kept]), published, waited))
    over = max(ages([kept], NOW).over, ages([kept, after._replace(seen=NOW)], NOW).over)
    if published < over:
        assert Promises(after, [kept]).until(second) < NOW


@given(
    one=SETTINGS,
    other=SETTINGS,
    early=st.integers(0, 40).map(DAY.__mul__),
    age=st.integers(0, 80 * 24).map(HOUR.__mul__),
)
def test_whichever_flusher_applied_it_its_receipt_is_there_unless_it_is_unsure(
    one: Promise, other: Promise, early: int, age: int
) -> None:
    published = NOW - age
    applied = StoreMillis(min(published + min(early, one.reach), NOW))
    kept = [one._replace(seen=applied), other._replace(seen=StoreMillis(applied - FORCE - 1))]
    if published >= ages(kept, NOW).unsure:
        assert Promises(one, kept).expires(applied, of_client=False) > NOW


NAMES = st.text(st.characters(codec="utf-8"), max_size=9)
COUNTS = st.integers(0, 2**40)
TALLIES = st.builds(Tally, COUNTS, COUNTS, COUNTS, COUNTS)


@given(st.lists(NAMES, min_size=1), NAMES, TALLIES, st.dictionaries(NAMES, st.integers(-SHARD_FULL, SHARD_FULL)))
def test_what_is_written_is_read(attempts: list[str], commit: str, tally: Tally, sums: dict[str, int]) -> None:
    first, *others = written = [read_note(note) for note in notes_of_commit(attempts, commit, tally, sums)]
    assert [note.attempt for note in written] == attempts
    assert (first.commit, first.tally, first.sums) == (commit, tally, sums)
    assert not any(note.commit or note.sums or note.tally != Tally() for note in others)


@given(st.lists(st.lists(st.integers(0, 999), unique=True), min_size=1, max_size=5))
def test_second_uses_are_read_from_the_receipt_of_their_envelope(places: list[list[int]]) -> None:
    seconds = {number: its for number, its in enumerate(places) if its}
    written = notes_of_commit(["", "b"] * len(places), "c", Tally(), {}, seconds)
    assert [[*read_note(note).second_uses] for note in written] == places + [[]] * len(places)


def test_many_sums_go_into_as_many_receipts_as_they_need() -> None:
    sums = {f"n{number}": number for number in range(2_300)}
    written = notes_of_commit([""] * 4, "c", Tally(applied=9), sums)
    assert [len(read_note(note).sums) for note in written] == [1_000, 1_000, 300, 0]
    assert {name: total for note in written for name, total in read_note(note).sums.items()} == sums
    assert written[3] == b"", "most receipts say nothing"


def test_the_largest_note_fits_into_an_entity() -> None:
    sums = {f"{number:04}" + '"' * 396: -SHARD_FULL for number in range(MOST_SUMS)}
    places = {0: [*range(1_000)]}
    (note,) = notes_of_commit(["a" * 100], "c" * 12, Tally(*[2**60] * 4), sums, places)
    assert len(note) < 1_000_000
