"""Counts by time: which are kept, and to which an increment adds; the kinds of times and how instants are written.
Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, NewType, Protocol, TypeAlias, TypeVar

import orjson

# The kinds of times, each with its unit and its clock, so that mypy refuses one where another is expected. Pure.


Instant = NewType("Instant", int)
"""A place in the order of a store's commits: larger is later. Stores count commits, microseconds or versions, so it can
be compared only with instants of the same store. Snapshots, bases and floors have one.
"""
StoreMillis = NewType("StoreMillis", int)
"""Milliseconds by the store's clock. It alone decides what has expired or is too old. In a SQLite file they begin with
the file, elsewhere in 1970.
"""
BrokerMillis = NewType("BrokerMillis", int)
"""Milliseconds since 1970 by the broker's clock, which says when a message was published."""
WallMillis: TypeAlias = int
"""Milliseconds since 1970 by the clock of a process, for people. Nothing is decided by it, so any integer may be one.
"""
Millis = NewType("Millis", int)
"""A duration in milliseconds, such as a lifetime. Settings are in seconds."""
WallSeconds = NewType("WallSeconds", float)
"""Seconds since 1970 by a wall clock, which somebody may set."""
Monotonic = NewType("Monotonic", float)
"""Seconds since some moment by `Clock.monotonic` of this process, which never goes back."""

BEGINNING: Final = Instant(0)
"""Before every commit."""
NEVER: Final = StoreMillis(0)
"""Stands for no time, as in a receipt that never expires."""


HOUR: Final = Millis(3_600_000)
DAY: Final = Millis(24 * HOUR)
DAY_SECONDS: Final = DAY // 1_000
LENGTHS: Final[Mapping[str, int]] = {"minute": 60_000, "hour": HOUR, "day": DAY}
"""The periods, the shortest first, and how many milliseconds each has. To computers, all days of UTC are equal."""
FOR_EVER: Final = 1 << 62
"""Later than any bucket."""
MOST_FOLLOWED: Final = 100
"""The most rules for which a store remembers until when they were followed."""
SPARE: Final = DAY
"""Buckets are stored for so much longer than their retention: clocks differ, and only readings decide what is past."""
AHEAD: Final = HOUR
"""Milliseconds by which a date may be later than the present, since clocks differ. A later date counts as this one.
"""


class Rule(NamedTuple):
    """What is kept of the counters whose names begin with the prefix. The longest prefix decides."""

    prefix: str
    kept: tuple[tuple[str, Millis], ...]
    """Periods, and how long a bucket is kept after its end."""


Rules = tuple[Rule, ...]


class HasPrefix(Protocol):
    @property
    def prefix(self) -> str: ...


Prefixed = TypeVar("Prefixed", bound=HasPrefix)


class TimeBucket(NamedTuple):
    """One bucket: its counter, the name of its period, and when it begins."""

    counter: str
    by: str
    begin: WallMillis


class BucketAdd(NamedTuple):
    """Add `delta` to a shard of a bucket. Keep it until `expires` at least, unless a later add says an earlier time."""

    bucket: TimeBucket
    shard: int
    delta: int
    expires: StoreMillis


class ByTime(NamedTuple):
    """What a flusher's commit adds to buckets, and the rules that it follows."""

    adds: tuple[BucketAdd, ...] = ()
    rules: Rules = ()


class Followed(NamedTuple):
    """Rules, and until when commits followed them, or may have."""

    rules: Rules
    until: WallMillis


class Counts(NamedTuple):
    """What a store has of a counter by time: the count of each bucket, by its beginning."""

    buckets: Mapping[WallMillis, int]
    followed: Sequence[Followed]
    """The rules that all commits of flushers followed until now, and until when: `FOR_EVER` if more may come. Empty if
    there were none.
    """
    closed: WallMillis = 0
    """Nothing will be added to the periods that ended by then."""


class Dates(NamedTuple):
    """What a store that takes one commit after the other knows of dates."""

    followed: Sequence[Followed] = ()
    """See `Counts`."""
    closed: WallMillis = 0
    """See `Counts`."""
    latest: WallMillis = 0
    """No commit until now has dated anything later, whatever rules it followed."""

    def after(self, by_time: ByTime, wall: WallMillis) -> "tuple[Dates, Sequence[BucketAdd]]":
        """What it knows after a commit at this time by the wall clock, and what the commit adds.

        The wall clock may be set back at any time. So rules that end were followed until `latest`.
        """
        end_of_minute = begin_of("minute", wall) + LENGTHS["minute"] - 1
        latest = max(self.latest, self.closed, end_of_minute)
        followed, closed, _ = self._opened(wall)
        followed = followed_after(followed, by_time.rules, latest + 1)
        return Dates(followed, closed, latest), moved(by_time.adds, closed, latest)

    def closing(self, until: WallMillis, wall: WallMillis) -> "Dates":
        opened = self._opened(wall)
        return opened._replace(closed=max(opened.closed, until))

    def _opened(self, wall: WallMillis) -> "Dates":
        """What is closed stays closed though a clock is set back, unless it ends more than a day in the future. Then
        the clock was wrong when it was closed, and all increments would count in that future. So it is opened, and
        nothing before its end is whole any more.
        """
        if is_plausible(self.closed, wall):
            return self
        followed = followed_too(self.followed, Followed((), self.closed))
        return Dates(followed, begin_of("minute", wall), max(self.latest, self.closed))


def is_plausible(closed: WallMillis, now: WallMillis) -> bool:
    """Whether periods may really have been closed until then: a clock that differs by more than a day is wrong."""
    return closed <= now + DAY


def rule_of(rules: Iterable[Prefixed], counter: str) -> Prefixed | None:
    """The rule for this counter, of those of one kind: that with the longest prefix."""
    return max((one for one in rules if counter.startswith(one.prefix)), key=lambda one: len(one.prefix), default=None)


def retention_of(rules: Iterable[Rule], counter: str, by: str) -> Millis | None:
    """How long buckets of this period are kept; None if they are not."""
    rule = rule_of(rules, counter)
    return None if rule is None else dict(rule.kept).get(by)


def longest_under(rules: Iterable[Rule], prefix: str, by: str) -> Millis | None:
    """The longest retention of these periods of any name under the prefix; None if none of them has any."""
    rules = [*rules]
    found = [dict(rule.kept).get(by) for rule in rules if rule.prefix.startswith(prefix)]
    return max((kept for kept in (*found, retention_of(rules, prefix, by)) if kept is not None), default=None)


def buckets_of(rules: Rules, created: WallMillis, sums: Mapping[str, int]) -> dict[TimeBucket, int]:
    """What an envelope that was created then adds to buckets."""
    found: dict[TimeBucket, int] = {}
    for counter, delta in sums.items():
        if delta and (rule := rule_of(rules, counter)) is not None:
            for by, _ in rule.kept:
                found[TimeBucket(counter, by, begin_of(by, created))] = delta
    return found


def index_of(by: str, when: WallMillis) -> int:
    """Which of the periods since 1970 holds this time: the first one is 0."""
    return when // LENGTHS[by]


def begin_at(by: str, index: int) -> WallMillis:
    return index * LENGTHS[by]


def begin_of(by: str, when: WallMillis) -> WallMillis:
    """When the period begins that holds this time."""
    return begin_at(by, index_of(by, when))


def begin_from(by: str, when: WallMillis) -> WallMillis:
    """When the first period begins that does not begin before."""
    return begin_at(by, index_of(by, when - 1) + 1)


def dated(when: WallMillis, closed: WallMillis, latest: WallMillis) -> WallMillis:
    """The time as which an increment of this date counts: it is not later than `latest`, and in no closed period."""
    return max(min(when, latest), closed)


def moved(adds: Sequence[BucketAdd], closed: WallMillis, latest: WallMillis) -> Sequence[BucketAdd]:
    """What a commit adds, each in the bucket of the time as which it counts."""
    if all(closed <= add.bucket.begin <= latest for add in adds):
        return adds
    return [_moved(add, begin_of(add.bucket.by, dated(add.bucket.begin, closed, latest))) for add in adds]


def _moved(add: BucketAdd, begin: WallMillis) -> BucketAdd:
    """A bucket that seemed to be past is kept as if it ended now: one that is moved to the present ends a period later
    at most.
    """
    later = min(begin - add.bucket.begin, LENGTHS[add.bucket.by])
    return add._replace(bucket=add.bucket._replace(begin=begin), expires=StoreMillis(add.expires + later))


def by_time_of(
    rules: Rules,
    sums: Mapping[TimeBucket, int],
    of_totals: Iterable[tuple[str, int, int, int, int]],
    wall: WallMillis,
    now: StoreMillis,
) -> ByTime:
    """What a commit adds to buckets: each to the shard that its counter's total is added to (`ShardAdd`). `wall` and
    `now` are the same instant by two clocks. A wall clock that is ahead for a while must not shorten what is kept, so
    a bucket that seems to be past is kept as long as one that ends now.
    """
    shards = {counter: shard for counter, shard, *_ in of_totals} if sums else {}
    adds = []
    for bucket, delta in sums.items():
        left = max(bucket.begin + LENGTHS[bucket.by] - wall, 0) + (retention_of(rules, *bucket[:2]) or 0) + SPARE
        # In whole hours, so that not every add changes it, and the index of a store with it.
        expires = StoreMillis(-(-(now + left) // HOUR) * HOUR)
        adds.append(BucketAdd(bucket, shards[bucket.counter], delta, expires))
    return ByTime(tuple(adds), rules)


def text_of(followed: Iterable[Followed]) -> str:
    """As a store keeps it."""
    return orjson.dumps([([tuple(rule) for rule in rules], until) for rules, until in followed]).decode()


def followed_of(text: str | bytes) -> list[Followed]:
    """Read what `text_of` wrote."""
    return [
        Followed(
            tuple([Rule(prefix, tuple([(by, Millis(kept)) for by, kept in each])) for prefix, each in rules]), until
        )
        for rules, until in orjson.loads(text)
    ]


def followed_too(before: Iterable[Followed], one: Followed) -> list[Followed]:
    """The followed rules, with one more. Beyond `MOST_FOLLOWED`, the oldest become one that keeps nothing."""
    until = {each.rules: each.until for each in before}
    until[one.rules] = max(one.until, until.get(one.rules, 0))
    while len(until) > MOST_FOLLOWED:
        oldest = min([rules for rules in until if rules], key=until.__getitem__)
        until[()] = max(until.get((), 0), until.pop(oldest))
    return [Followed(*each) for each in until.items()]


def followed_after(before: Sequence[Followed], rules: Rules, now: WallMillis) -> Sequence[Followed]:
    """What was followed, after a commit of these rules, if commits come one after the other."""
    if any(one.rules == rules and one.until == FOR_EVER for one in before):
        return before
    ended = [one._replace(until=min(one.until, now)) for one in before]
    return followed_too(ended, Followed(rules, FOR_EVER))


def since_of(followed: Iterable[Followed], rules: Rules, counter: str, by: str) -> WallMillis:
    """Since when the buckets that the rules want of a counter are whole: until then, commits may have followed rules
    that do not keep them, or not for so long.
    """
    kept = retention_of(rules, counter, by) or 0
    return max([one.until for one in followed if (retention_of(one.rules, counter, by) or -1) < kept], default=0)


# How instants are written for people and for other programs: RFC 3339, in UTC, with milliseconds. Pure.


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6}(\d*))?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLI
LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLI


def written(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written_at(seconds: float) -> str:
    """`seconds`: since 1970."""
    return written(datetime.fromtimestamp(seconds, UTC))


def datetime_of(when: WallMillis) -> datetime:
    """Exact for each instant that `millis_of` returns."""
    return _EPOCH + when * _MILLI


def written_millis(when: WallMillis) -> str:
    return written(datetime_of(when))


def written_second(when: WallMillis) -> bytes:
    """A whole second, without a fraction."""
    return datetime_of(when).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def millis_of(text: str) -> WallMillis:
    """Milliseconds since 1970, rounded up, at least the first of the year 1, and at most the last of 9999. Raises
    `ValueError` if the text is no instant of RFC 3339.
    """
    try:
        if not (found := _INSTANT.fullmatch(text)):
            raise ValueError
        finer = timedelta(microseconds=1 if (found[1] or "").strip("0") else 0)  # Python drops it
        when = -((_EPOCH - datetime.fromisoformat(text.upper()) - finer) // _MILLI)
    except (ValueError, OverflowError):
        raise ValueError("must be an instant as in RFC 3339, such as 2026-01-31T12:00:00Z") from None
    return min(max(when, _FIRST), LAST)
