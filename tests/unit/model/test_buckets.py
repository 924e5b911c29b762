"""Counts by time: which rule decides, what a commit adds, since when buckets are whole, how instants are written."""

from collections.abc import Sequence

import pytest

from shared.model.buckets import (
    DAY,
    FOR_EVER,
    HOUR,
    MOST_FOLLOWED,
    SPARE,
    BucketAdd,
    ByTime,
    Dates,
    Followed,
    Millis,
    Rule,
    StoreMillis,
    TimeBucket,
    begin_at,
    begin_from,
    begin_of,
    buckets_of,
    by_time_of,
    datetime_of,
    followed_after,
    followed_of,
    index_of,
    longest_under,
    millis_of,
    retention_of,
    since_of,
    text_of,
    written_millis,
    written_second,
)
from shared.model.jobs import Span, span_fields, span_of, span_text

LONG, SHORT = Millis(90 * DAY), Millis(DAY)
RULES = (Rule("", (("day", LONG),)), Rule("page:", (("day", LONG), ("hour", SHORT))), Rule("page:x", (("hour", LONG),)))


def test_the_longest_prefix_decides() -> None:
    assert retention_of(RULES, "page:a", "hour") == SHORT
    assert retention_of(RULES, "page:xy", "hour") == LONG
    assert retention_of(RULES, "page:xy", "day") is None
    assert retention_of(RULES, "other", "day") == LONG
    assert retention_of((), "other", "day") is None


def test_under_a_prefix_the_longest_retention_is_that_of_any_name() -> None:
    assert longest_under(RULES, "page:", "hour") == LONG
    assert longest_under(RULES, "page:a", "hour") == SHORT
    assert longest_under(RULES, "", "hour") == LONG
    assert longest_under(RULES, "p", "day") == LONG
    assert longest_under(RULES, "page:xy", "day") is None
    assert longest_under(RULES, "other", "hour") is None
    assert longest_under((), "", "day") is None


def test_a_sum_is_added_to_each_period_that_is_kept_and_zero_to_none() -> None:
    when = 5 * DAY + 3 * HOUR + 1
    assert buckets_of(RULES, when, {"page:a": 4, "other": -1, "zero": 0}) == {
        TimeBucket("page:a", "day", 5 * DAY): 4,
        TimeBucket("page:a", "hour", 5 * DAY + 3 * HOUR): 4,
        TimeBucket("other", "day", 5 * DAY): -1,
    }


def test_a_bucket_outlives_its_retention_whatever_the_clock_of_the_flusher_says() -> None:
    now, sums = StoreMillis(7), {TimeBucket("page:a", "hour", 100 * DAY): 1}
    for wall in (100 * DAY + 1, 100 * DAY + HOUR + 1, 100 * DAY + 2 * SHORT, 40_000 * DAY):
        (add,) = by_time_of(RULES, sums, [("page:a", 3, 1, 4, 0)], wall, now).adds
        assert (add.shard, add.delta) == (3, 1)
        ends = now + max(100 * DAY + HOUR - wall, 0) + SHORT + SPARE
        assert ends <= add.expires < ends + HOUR


def test_what_is_whole_begins_anew_only_where_it_must() -> None:
    first = followed_after([], RULES, 10)
    assert followed_after(first, RULES, 20) is first
    assert since_of(first, RULES, "page:a", "hour") == 0, "nothing was counted before"
    longer = (RULES[0], Rule("page:", (("day", LONG), ("hour", LONG))), RULES[2])
    later = followed_after(first, longer, 20)
    assert since_of(later, longer, "page:a", "hour") == 20
    assert since_of(later, longer, "page:a", "day") == since_of(later, longer, "o", "day") == 0
    assert since_of(later, RULES, "page:a", "hour") == 0, "who asks for less gets it"
    fewer = followed_after(first, RULES[:2], 30)
    assert since_of(fewer, RULES[:2], "page:xy", "hour") == 0
    assert since_of(fewer, RULES[:2], "page:xy", "day") == 30, "its hours were kept, its days were not"
    assert since_of(fewer, RULES, "page:xy", "hour") == FOR_EVER, "they are not kept so long any more"
    again = followed_after(fewer, RULES, 40)
    assert since_of(again, RULES, "page:xy", "hour") == 40


def test_old_rules_are_forgotten_as_if_they_had_kept_nothing() -> None:
    followed: Sequence[Followed] = ()
    for number in range(MOST_FOLLOWED + 10):
        followed = followed_after(followed, (*RULES, Rule(f"x{number}", (("hour", LONG),))), 1_000 + number)
    assert len(followed) == MOST_FOLLOWED
    assert followed_of(text_of(followed)) == followed
    assert 1_000 < since_of(followed, RULES, "page:a", "hour") < 1_020
    assert sum(one.until == FOR_EVER for one in followed) == 1


KEEP, NONE = ByTime((), RULES), ByTime()


def hour_of(when: int) -> BucketAdd:
    return BucketAdd(TimeBucket("page:a", "hour", when - when % HOUR), 0, 1, StoreMillis(0))


def test_what_was_not_kept_is_not_whole_though_the_clock_was_set_back_between_two_rules() -> None:
    now = 1_000 * DAY + 30 * 60_000
    dates, _ = Dates().after(NONE, now)
    dates, _ = dates.after(KEEP, now - HOUR)
    since = since_of(dates.followed, RULES, "page:a", "hour")
    assert now < since <= now + 60_000
    again, _ = dates.after(NONE, now - 2 * HOUR)
    again, _ = again.after(KEEP, now - 3 * HOUR)
    assert since_of(again.followed, RULES, "page:a", "hour") == since


def test_what_was_closed_by_a_clock_that_was_far_ahead_is_opened_and_not_whole() -> None:
    now, ahead = 1_000 * DAY, 1_400 * DAY
    dates, _ = Dates(closed=ahead).after(KEEP, now)
    assert dates.closed == now
    assert since_of(dates.followed, RULES, "page:a", "hour") == ahead
    dates, adds = dates.after(ByTime((hour_of(now + HOUR),), RULES), now + HOUR)
    assert [add.bucket.begin for add in adds] == [now + HOUR]
    dates, _ = dates.after(NONE, now + HOUR)
    dates, _ = dates.after(KEEP, now + HOUR)
    assert since_of(dates.followed, RULES, "page:a", "hour") > ahead, "other rules don't make it whole"


def test_who_closes_opens_what_was_closed_by_a_clock_that_was_far_ahead() -> None:
    now, ahead = 1_000 * DAY, 1_400 * DAY
    first, _ = Dates().after(KEEP, now)
    dates = first.closing(ahead, ahead).closing(now, now)
    assert dates.closed == now
    assert since_of(dates.followed, RULES, "page:a", "hour") == ahead
    assert first.closing(now, now).closing(now - HOUR, now - HOUR).closed == now


@pytest.mark.parametrize(
    ("when", "index", "holds", "next_"),
    [
        (0, 0, 0, 0),
        (1, 0, 0, HOUR),
        (HOUR - 1, 0, 0, HOUR),
        (HOUR, 1, HOUR, HOUR),
        (HOUR + 1, 1, HOUR, 2 * HOUR),
        (-1, -1, -HOUR, 0),
        (-HOUR, -1, -HOUR, -HOUR),
    ],
)
def test_a_time_is_in_one_period_and_the_next_one_begins_then_or_later(
    when: int, index: int, holds: int, next_: int
) -> None:
    assert index_of("hour", when) == index
    assert begin_at("hour", index) == begin_of("hour", when) == holds
    assert begin_from("hour", when) == next_


@pytest.mark.parametrize("span", [None, Span("hour"), Span("day", -5), Span("minute", 0, 2**48)])
def test_a_store_reads_what_it_wrote(span: Span | None) -> None:
    assert span_of(span_text(span)) == span


def test_a_span_is_shown_in_utc() -> None:
    assert span_fields(None) == {}
    assert span_fields(Span("hour")) == {"by": "hour", "from": None, "to": None}
    assert span_fields(Span("day", 1_500, -1)) == {
        "by": "day",
        "from": "1970-01-01T00:00:01.500Z",
        "to": "1969-12-31T23:59:59.999Z",
    }


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("2026-01-31t12:00:00.0001+02:00", "2026-01-31T10:00:00.001Z"),
        ("2026-01-31T12:00:00.000000001Z", "2026-01-31T12:00:00.001Z"),
        ("2026-01-31T12:00:00.123000000Z", "2026-01-31T12:00:00.123Z"),
        (f"2026-01-31T12:00:00.{'0' * 5_000}Z", "2026-01-31T12:00:00.000Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.9999-23:59", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_rounded_up_to_a_millisecond_that_can_be_written(text: str, instant: str) -> None:
    when = millis_of(text)
    assert written_millis(when) == instant
    assert millis_of(instant) == when
    assert datetime_of(when).utcoffset() is not None


@pytest.mark.parametrize("text", ["", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "now"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be an instant as in RFC 3339"):
        millis_of(text)


def test_a_period_is_written_without_a_fraction() -> None:
    assert written_second(86_400_000) == b"1970-01-02T00:00:00Z"
