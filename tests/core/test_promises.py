"""How long receipts live, and until when envelopes may be applied, where flushers have different settings."""

from hypothesis import given
from hypothesis import strategies as st

from shared.promises import FORCE, RENEWED, Promise, Promises, promised
from shared.receipts import CLIENT_IDS_REMEMBERED, DAY, HOUR

WEEK = promised(7 * DAY, DAY)
MONTH = promised(31 * DAY, DAY)


def test_a_receipt_outlives_the_sum_of_what_a_spool_and_the_broker_keep() -> None:
    for spool in (0, DAY, 31 * DAY):
        ours = promised(7 * DAY, spool)
        assert ours.reach >= 7 * DAY
        assert ours.life >= ours.reach + spool + HOUR
        assert Promises(ours).longest_spool() >= spool


def test_what_is_healthy_is_never_too_old() -> None:
    """Pub/Sub may deliver it for as long as it keeps it, and clocks of two services of Google agree to an hour."""
    published = 100 * DAY
    assert Promises(WEEK).until(published) >= published + 7 * DAY + HOUR


def test_a_receipt_of_a_clients_id_lives_eight_days_longer() -> None:
    one = Promises(WEEK)
    assert one.expires(5, of_client=True) == one.expires(5, of_client=False) + CLIENT_IDS_REMEMBERED


def test_after_a_raise_the_smaller_promise_judges_what_was_published_under_it() -> None:
    raised = 100 * DAY
    after = Promises(MONTH, [WEEK._replace(seen=raised), MONTH._replace(seen=raised + DAY)])
    assert after.until(raised - DAY) == raised - DAY + WEEK.reach
    later = raised + FORCE + CLIENT_IDS_REMEMBERED + MONTH.life - MONTH.reach + 1
    assert after.until(later) == later + MONTH.reach


def test_after_a_lowering_receipts_go_on_to_live_by_the_greater_while_a_flusher_may_have_it() -> None:
    lowered = 100 * DAY
    after = Promises(WEEK, [MONTH._replace(seen=lowered), WEEK._replace(seen=lowered + HOUR)])
    assert after.until(lowered) == lowered + WEEK.reach
    assert after.expires(lowered + FORCE, of_client=False) == lowered + FORCE + MONTH.life
    assert after.expires(lowered + FORCE + 1, of_client=False) == lowered + FORCE + 1 + WEEK.life


def test_a_promise_is_renewed_before_it_is_an_hour_old_and_not_oftener() -> None:
    now = 100 * DAY
    assert Promises(WEEK).renew(now) == WEEK._replace(seen=now)
    kept = Promises(WEEK, [WEEK._replace(seen=now)])
    assert kept.renew(now + RENEWED - 1) is None
    assert kept.renew(now + RENEWED) == WEEK._replace(seen=now + RENEWED)


def test_a_promise_that_is_smaller_than_one_in_force_need_not_be_made() -> None:
    now = 100 * DAY
    assert Promises(WEEK, [MONTH._replace(seen=now)]).renew(now + 1) is None
    assert Promises(MONTH, [WEEK._replace(seen=now)]).renew(now + 1) == MONTH._replace(seen=now + 1)
    assert Promises(WEEK, [MONTH._replace(seen=now)]).renew(now + RENEWED) == WEEK._replace(seen=now + RENEWED)


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
    kept = one._replace(seen=applied - stale)
    expires = Promises(kept).expires(max(applied, first), of_client=False)
    judge = Promises(other, [kept])
    second = first + min(waited, judge.longest_spool())
    assert judge.until(second) < expires
