"""What is reported to others: the rules of the feed and of thresholds, and the events that they make. Pure.

For example, `page:=10s` tells of each counter under `page:` that changed, at most once in ten seconds. A receiver that
keeps the event with the greatest sequence has the value of the counter. `page:=every 1000` tells once of each thousand
that a counter reaches.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from shared.model.buckets import Instant, Millis, WallSeconds, written_at

CHANGED: Final = "countersink.counter.changed"
REACHED: Final = "countersink.threshold.reached"
LARGEST: Final = 2**63 - 1
"""Totals beyond it count as this one where thresholds are judged."""
MOST_LEVELS: Final = 10_000
"""Thresholds of `every` that are reported for one commit: the highest. Otherwise one increment could make billions of
events.
"""


class FeedRule(NamedTuple):
    """Counters whose names begin with the prefix are reported once in an interval at most. The longest prefix wins."""

    prefix: str
    interval: Millis


class Levels(NamedTuple):
    """Thresholds: `first`, `first + step` and so on up to `last`."""

    first: int
    last: int
    step: int


class ThresholdRule(NamedTuple):
    """The thresholds of counters whose names begin with the prefix. The longest prefix decides."""

    prefix: str
    every: int
    """All multiples of it are thresholds; 0: there is a list."""
    at: tuple[int, ...] = ()

    def reached(self, height: int, value: int) -> Sequence[Levels]:
        """The thresholds above `height` and not above `value`."""
        if not self.every:
            return [Levels(one, one, 1) for one in self.at if height < one <= value]
        first = (max(height, 0) // self.every + 1) * self.every
        last = value // self.every * self.every
        first = max(first, last - (MOST_LEVELS - 1) * self.every)
        return [Levels(first, last, self.every)] if first <= last else []

    def has(self, levels: Levels) -> bool:
        """Whether these are thresholds of this rule."""
        if not self.every:
            return levels.first in self.at
        return levels.step == self.every and levels.first % self.every == 0


def bounded(total: int) -> int:
    return max(-LARGEST, min(total, LARGEST))


class Told(NamedTuple):
    """What is reported, and to whom."""

    feed: tuple[FeedRule, ...] = ()
    thresholds: tuple[ThresholdRule, ...] = ()
    receiver: str = ""
    """A digest of the URL of the receiver: a new one has to get all counters."""

    def prefixes(self) -> tuple[str, ...]:
        """How the names of reported counters begin."""
        return tuple(rule.prefix for rule in self.feed)

    def text(self) -> str:
        """As stores keep it; empty if nothing is reported."""
        return json.dumps(self) if self.feed or self.thresholds else ""


NOTHING: Final = Told()


def told(feed: Sequence[FeedRule], thresholds: Sequence[ThresholdRule], receiver: str) -> Told:
    return Told((*sorted(feed),), (*sorted(thresholds),), sha256(receiver.encode()).hexdigest()[:16])


@lru_cache(maxsize=4)
def told_of(text: str) -> Told:
    """Read what `Told.text` wrote."""
    if not text:
        return NOTHING
    feed, thresholds, receiver = json.loads(text)
    rules = (ThresholdRule(prefix, every, (*at,)) for prefix, every, at in thresholds)
    return Told(tuple(FeedRule(*one) for one in feed), (*rules,), receiver)


class Change(NamedTuple):
    """A counter that changed, and its applied value at one instant."""

    counter: str
    value: int
    at: Instant
    as_of: WallSeconds


class Reach(NamedTuple):
    """A counter that reached thresholds in one commit."""

    row: int | str
    """How the book knows it."""
    counter: str
    generation: int
    """Another one after each set, reset or delete. Each threshold is reached once in a generation."""
    levels: Levels
    value: int
    at: Instant
    as_of: WallSeconds


class Event(NamedTuple):
    """A CloudEvent, as a receiver gets it."""

    id: str
    """Equal each time that the event is sent."""
    type: str
    counter: str
    as_of: WallSeconds
    data: dict[str, Any]

    def attributes(self, source: str) -> dict[str, str]:
        """The attributes of CloudEvents, by their names."""
        return {
            "specversion": "1.0",
            "id": self.id,
            "source": source,
            "type": self.type,
            "subject": self.counter,
            "time": written_at(self.as_of),
            "datacontenttype": "application/json",
        }

    def structured(self, source: str) -> bytes:
        """The event in one line of JSON. Values may be beyond 64 bits."""
        whole = self.attributes(source) | {"data": self.data}
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def changed(one: Change) -> Event:
    data = {"counter": one.counter, "value": one.value, "as_of": written_at(one.as_of), "sequence": one.at}
    return Event(f"{one.at}/{one.counter}", CHANGED, one.counter, one.as_of, data)


def reached(one: Reach, most: int) -> Iterator[tuple[int, Event]]:
    """The first events of a commit, each with its threshold."""
    for level in range(one.levels.first, one.levels.last + 1, one.levels.step)[:most]:
        data = {
            "counter": one.counter,
            "threshold": level,
            "generation": one.generation,
            "value": one.value,
            "as_of": written_at(one.as_of),
            "sequence": one.at,
        }
        yield level, Event(f"{one.generation}/{level}/{one.counter}", REACHED, one.counter, one.as_of, data)
