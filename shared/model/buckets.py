"""Counts by time: which are kept, for how long, and to which of them an increment adds. Pure.

A bucket is the count of one counter in one minute, hour or day of UTC. It is kept in shards, as totals are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from shared.model.times import Millis, StoreMillis, WallMillis

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
LENGTHS: Final[Mapping[str, int]] = {"minute": 60_000, "hour": HOUR, "day": DAY}
"""The periods, and how many milliseconds each has. UTC has no days of other lengths, as far as computers can tell."""
SPARE: Final = DAY
"""Buckets are stored for so much longer than their retention: clocks differ, and only readings decide what is past."""


class Rule(NamedTuple):
    """What is kept of the counters whose names begin with the prefix. The longest prefix decides."""

    prefix: str
    kept: tuple[tuple[str, Millis], ...]
    """Periods, and how long a bucket is kept after its end."""


Rules = tuple[Rule, ...]


class TimeBucket(NamedTuple):
    """One bucket: its counter, the name of its period, and when it begins."""

    counter: str
    by: str
    begin: WallMillis


class BucketAdd(NamedTuple):
    """Add `delta` to a shard of a bucket, and keep it until `expires` at least."""

    bucket: TimeBucket
    shard: int
    delta: int
    expires: StoreMillis


class ByTime(NamedTuple):
    """What a flusher's commit adds to buckets, and the rules that it follows."""

    adds: tuple[BucketAdd, ...] = ()
    rules: Rules = ()


class Whole(NamedTuple):
    """Since when all commits have followed a rule: buckets that begin earlier may lack something."""

    prefix: str
    by: str
    retention: Millis
    since: WallMillis


class Counts(NamedTuple):
    """What a store has of a counter by time: the count of each bucket, by its beginning."""

    buckets: Mapping[WallMillis, int]
    since: WallMillis | None
    """See `Whole`; 0 if nothing was ever counted before. None if the flushers do not keep these buckets."""


def rule_of(rules: Iterable[Rule], counter: str) -> Rule | None:
    return max((rule for rule in rules if counter.startswith(rule.prefix)), key=_length, default=None)


def retention_of(rules: Iterable[Rule], counter: str, by: str) -> Millis | None:
    """How long buckets of this period are kept; None if they are not."""
    rule = rule_of(rules, counter)
    return None if rule is None else dict(rule.kept).get(by)


def buckets_of(rules: Rules, created: WallMillis, sums: Mapping[str, int]) -> dict[TimeBucket, int]:
    """What an envelope that was created then adds to buckets."""
    found: dict[TimeBucket, int] = {}
    for counter, delta in sums.items():
        if delta and (rule := rule_of(rules, counter)) is not None:
            for by, _ in rule.kept:
                found[TimeBucket(counter, by, begin_of(by, created))] = delta
    return found


def begin_of(by: str, when: WallMillis) -> WallMillis:
    return when - when % LENGTHS[by]


def by_time_of(
    rules: Rules,
    sums: Mapping[TimeBucket, int],
    of_totals: Iterable[tuple[str, int, int, int, int]],
    wall: WallMillis,
    now: StoreMillis,
) -> ByTime:
    """What a commit adds to buckets: each to the shard that its counter's total is added to (`ShardAdd`). `wall` and
    `now` are the same instant by two clocks. What no reading will show any more is left out.
    """
    shards = {counter: shard for counter, shard, *_ in of_totals} if sums else {}
    adds = []
    for bucket, delta in sums.items():
        left = bucket.begin + LENGTHS[bucket.by] + (retention_of(rules, *bucket[:2]) or 0) + SPARE - wall
        if left > 0:
            # In whole hours, so that not every add changes it, and the index of a store with it.
            expires = StoreMillis(-(-(now + left) // HOUR) * HOUR)
            adds.append(BucketAdd(bucket, shards[bucket.counter], delta, expires))
    return ByTime(tuple(adds), rules)


def text_of(rules: Rules) -> str:
    """The rules as a store keeps them. Equal rules have equal texts."""
    return orjson.dumps([tuple(rule) for rule in rules]).decode() if rules else ""


def whole_after(before: Sequence[Whole], rules: Rules, now: WallMillis) -> list[Whole]:
    """What is whole after the rules of commits have changed to these. What was kept before, for as long, stays whole,
    unless a rule has gone whose counters had other buckets until now.
    """
    prefixes = {rule.prefix for rule in rules}
    gone = {one.prefix for one in before if one.prefix not in prefixes}
    known = {(one.prefix, one.by): one for one in before}
    after = []
    for prefix, kept in rules:
        took_over = any(one.startswith(prefix) for one in gone)
        for by, retention in kept:
            there = known.get((prefix, by))
            stays = there is not None and there.retention >= retention and not took_over
            after.append(Whole(prefix, by, retention, there.since if there is not None and stays else now))
    return after


def since_of(whole: Sequence[Whole], counter: str, by: str) -> WallMillis | None:
    """Since when the buckets of a counter are whole; None if they are not kept."""
    its = [one for one in whole if counter.startswith(one.prefix)]
    longest = max([len(one.prefix) for one in its], default=0)
    return next((one.since for one in its if len(one.prefix) == longest and one.by == by), None)


def _length(rule: Rule) -> int:
    return len(rule.prefix)
