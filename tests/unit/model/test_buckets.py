"""Counts by time: which rule decides, what a commit adds, and since when buckets are whole."""

from shared.model.buckets import (
    DAY,
    HOUR,
    SPARE,
    Rule,
    TimeBucket,
    Whole,
    buckets_of,
    by_time_of,
    retention_of,
    since_of,
    whole_after,
)
from shared.model.times import Millis, StoreMillis

LONG, SHORT = Millis(90 * DAY), Millis(DAY)
RULES = (Rule("", (("day", LONG),)), Rule("page:", (("day", LONG), ("hour", SHORT))), Rule("page:x", (("hour", LONG),)))


def test_the_longest_prefix_decides() -> None:
    assert retention_of(RULES, "page:a", "hour") == SHORT
    assert retention_of(RULES, "page:xy", "hour") == LONG
    assert retention_of(RULES, "page:xy", "day") is None
    assert retention_of(RULES, "other", "day") == LONG
    assert retention_of((), "other", "day") is None


def test_a_sum_is_added_to_each_period_that_is_kept_and_zero_to_none() -> None:
    when = 5 * DAY + 3 * HOUR + 1
    assert buckets_of(RULES, when, {"page:a": 4, "other": -1, "zero": 0}) == {
        TimeBucket("page:a", "day", 5 * DAY): 4,
        TimeBucket("page:a", "hour", 5 * DAY + 3 * HOUR): 4,
        TimeBucket("other", "day", 5 * DAY): -1,
    }


def test_a_bucket_outlives_its_retention_and_what_is_long_past_is_left_out() -> None:
    wall, now = 100 * DAY + 1, StoreMillis(7)
    sums = {TimeBucket("page:a", "hour", 100 * DAY): 1, TimeBucket("page:a", "hour", 98 * DAY - HOUR): 1}
    (add,) = by_time_of(RULES, sums, [("page:a", 3, 1, 4, 0)], wall, now).adds
    assert (add.shard, add.delta) == (3, 1)
    ends = now + HOUR - 1 + SHORT + SPARE
    assert ends <= add.expires < ends + HOUR


def test_what_is_whole_begins_anew_only_where_it_must() -> None:
    first = whole_after([], RULES, 10)
    assert {one.since for one in first} == {10}
    assert whole_after(first, RULES, 20) == first
    longer = (RULES[0], Rule("page:", (("day", LONG), ("hour", LONG))), RULES[2])
    later = whole_after(first, longer, 20)
    assert since_of(later, "page:a", "hour") == 20
    assert since_of(later, "page:a", "day") == since_of(later, "o", "day") == 10
    fewer = whole_after(first, RULES[:2], 30)
    assert since_of(fewer, "page:xy", "hour") == 30, "its hours were kept, its days were not"
    assert since_of(fewer, "page:xy", "day") == 30
    assert since_of([Whole("page:", "hour", SHORT, 5), Whole("page:x", "day", SHORT, 6)], "page:xy", "hour") is None
