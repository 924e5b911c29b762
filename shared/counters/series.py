"""Reads counts by time exactly: what is applied at one instant, and what is pending; and writes them as JSON."""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

import orjson

from shared.counters.pending import doubtful, exists
from shared.counters.reader import LONGEST_AGE, MOST_BASES, MOST_TRIES, Look, looking
from shared.model.buckets import (
    AHEAD,
    LAST,
    LENGTHS,
    Millis,
    Rules,
    WallMillis,
    WallSeconds,
    begin_at,
    begin_from,
    begin_of,
    dated,
    index_of,
    is_plausible,
    longest_under,
    retention_of,
    since_of,
    written_at,
    written_second,
)
from shared.model.errors import CountersinkError, OverloadedError
from shared.model.jobs import Span
from shared.model.words import Entry, Lately
from shared.ports.overlay import Overlay
from shared.ports.store import Periods
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

MOST_POINTS: Final = 10_000
MOST_READ_AT_ONCE: Final = 4
MOST_SERIES_WAITING: Final = 1_000
CLOSED_WITHIN: Final = 5.0
"""Seconds until an answer does without closing periods. On Datastore a flusher that died in a commit holds them open,
until the server ends its transaction after a minute. Clients wait for 10 seconds.
"""


class SpanError(CountersinkError):
    """An export can't have these counts by time. `field` says which part of the span is wrong."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


class SeriesRange(NamedTuple):
    """Whole periods of one counter that follow each other."""

    counter: str
    by: str
    begin: WallMillis
    end: WallMillis
    to_present: bool = False
    """Whether the end is that of the present period. If what is closed ends later, the present period is the one after
    that: a clock was set back.
    """


class Series(NamedTuple):
    """The counts of a counter in a range."""

    range: SeriesRange
    points: dict[WallMillis, int]
    """The counts, by the beginning of the period. Periods of count 0 are left out."""
    exact: bool
    """Whether all is known (`known`), all points were kept since they began, and those of periods that are over are
    final.
    """
    as_of: WallSeconds
    value: int
    """The counter's total at the same instant."""
    exists: bool
    known: bool
    """Whether everything is known that was accepted before, so that total and points lack nothing that is kept, and
    whether the periods that are over are closed.
    """


class SeriesReader:
    """Reads series. Nothing is cached."""

    def __init__(self, store: Periods, overlay: Overlay, clock: Clock, rules: Rules) -> None:
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._rules = rules
        self._slots = asyncio.Semaphore(MOST_READ_AT_ONCE)
        self._closing = asyncio.Lock()
        self._waiting = 0
        self._read: Lately[str, float] = Lately(MOST_BASES)
        """When the series of a counter was read last."""

    def read_lately(self, counters: Collection[str]) -> bool:
        since = self._clock.monotonic() - LONGEST_AGE
        return any(self._read[name] >= since for name in self._read.keys() & counters)

    def keeps(self, counter: str, by: str) -> bool:
        return retention_of(self._rules, counter, by) is not None

    def keeps_under(self, prefix: str, by: str) -> bool:
        return longest_under(self._rules, prefix, by) is not None

    def range(self, counter: str, by: str, begin: WallMillis | None, end: WallMillis | None) -> SeriesRange:
        """The periods that begin in the range: from the oldest that is kept, and up to the present one if `end` is not
        given; without `begin`, at most `MOST_POINTS`.
        """
        now = int(self._clock.now() * 1_000)
        kept = retention_of(self._rules, counter, by) or Millis(0)
        whole = _range(by, begin, now + 1 if end is None else end, now - kept)
        return SeriesRange(counter, by, *whole, to_present=end is None)

    async def read(self, asked: SeriesRange, *, only_whole: bool = False) -> Series:
        """The periods of a range that `range` returned. `only_whole`: leave out those from before they were kept."""
        if self._waiting >= MOST_SERIES_WAITING:
            raise OverloadedError(f"{self._waiting} series wait to be read: read fewer at once")
        self._waiting += 1
        self._read[asked.counter] = self._clock.monotonic()
        try:
            return await self._read_and_close(asked, only_whole=only_whole)
        finally:
            self._waiting -= 1

    async def _read_and_close(self, asked: SeriesRange, *, only_whole: bool) -> Series:
        """Read it; and if only that is missing for an exact answer, close the periods that are over, and read again."""
        for _ in range(MOST_TRIES):
            async with self._slots, looking(self._store, self._overlay, self._clock, (asked.counter,)) as look:
                found, to_close = await self._of(look, asked, only_whole=only_whole)
            if to_close is None:
                break
            try:
                async with asyncio.timeout(CLOSED_WITHIN), self._closing:
                    await self._store.close_periods(to_close)
            except (CountersinkError, TimeoutError) as error:
                _log.debug("periods that are over could not be closed, so the series is not exact: %r", error)
                break
        return found

    async def _of(self, look: Look, asked: SeriesRange, *, only_whole: bool) -> tuple[Series, WallMillis | None]:
        """The series at this instant, and until when periods have to be closed so that it can be exact. None if it is,
        or can't be: what is pending in a period that is over is still to be added to it.
        """
        counter, by, begin, end, to_present = asked
        snapshot, view, base = look.snapshot, look.views[counter], look.base(counter)
        found = await snapshot.counts(counter, by, begin, end)
        now = int(snapshot.as_of * 1_000)
        closed = found.closed if is_plausible(found.closed, now) else 0
        if to_present and end <= closed:
            end = begin_at(by, index_of(by, closed) + 1)
            found = await snapshot.counts(counter, by, begin, end)
        since = since_of(found.followed, self._rules, counter, by)
        if only_whole:
            begin = min(max(begin, begin_from(by, since)), end)
        each: list[tuple[Entry, int]] = []
        more = await look.pending(counter, base, each)
        over = min(begin_of(by, now), end)  # the end of the last period that is over
        final = over <= max(begin, closed)
        waits = False
        points = {when: count for when, count in found.buckets.items() if begin <= when < end}
        dead = {entry.key for entry in base.total.dead}
        for entry, delta in each:
            counts_as = dated(entry.created, closed, now + AHEAD)
            when = begin_of(by, counts_as)
            if begin <= when < end:
                points[when] = points.get(when, 0) + delta
            # A dead letter may wait for ever, so it counts when it is replayed.
            waits = waits or (counts_as < over and delta != 0 and entry.key not in dead)
        agrees = view.exact and not doubtful(base) and not look.ahead
        whole = agrees and since <= begin
        kept = {when: points[when] for when in sorted(points) if points[when]}
        series = Series(
            range=asked._replace(begin=begin, end=end),
            points=kept,
            exact=whole and final,
            as_of=snapshot.as_of,
            value=base.total.value + more,
            exists=exists(base, view, more),
            known=agrees and final and not base.total.flaw,
        )
        return series, over if whole and not final and not waits else None


def check_span(rules: Rules, prefix: str, span: Span, now: WallMillis) -> None:
    """Raise `SpanError` if no counter under the prefix has such periods, or too many of them for one reading."""
    kept = longest_under(rules, prefix, span.by)
    if kept is None:
        raise SpanError("by", f"counts by {span.by} are not kept under the prefix {prefix!r}: see COUNTERSINK_WINDOWS")
    if span.begin is not None and span.end is not None and span.begin > span.end:
        raise SpanError("from", "'from' must not be later than 'to'")
    begin, end = _range(span.by, span.begin, now + 1 if span.end is None else span.end, now - kept)
    if end - begin > MOST_POINTS * LENGTHS[span.by]:
        raise SpanError("from", f"at most {MOST_POINTS} periods of each counter: choose a later 'from'")


def _range(by: str, begin: WallMillis | None, end: WallMillis, oldest: WallMillis) -> tuple[WallMillis, WallMillis]:
    """Where the first of the periods begins that begin in the range, and where the last one ends. `oldest` is in the
    first one that is kept.
    """
    last = min(begin_from(by, max(end, 0)), begin_of(by, LAST))
    first = begin_at(by, index_of(by, last) - MOST_POINTS) if begin is None else begin_from(by, begin)
    return min(max(first, begin_of(by, oldest)), last), last


# How a series is written as JSON: in an answer, and as a line of an export.


def written(series: Series, *, total: bool = False) -> bytes:
    """`total`: also the counter's total, as `value`. By hand: counts may be larger than the integers of orjson."""
    counter, by, begin, end, _ = series.range
    points = [b'{"from":"%b","count":%d}' % (written_second(when), count) for when, count in series.points.items()]
    return b'{"name":%b,%b"by":"%b","from":"%b","to":"%b","points":[%b],"total":%d,"exact":%b,"as_of":"%b"}' % (
        orjson.dumps(counter),
        b'"value":%d,' % series.value if total else b"",
        by.encode(),
        written_second(begin),
        written_second(end),
        b",".join(points),
        sum(series.points.values()),
        b"true" if series.exact else b"false",
        written_at(series.as_of).encode(),
    )
