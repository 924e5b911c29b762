"""The counts by time in an audit: finds where the shorter periods of a longer one do not add up to it.

A commit adds to all periods that the rules keep, so an addition that was lost or made twice in one of them shows.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from shared.model.buckets import FOR_EVER, LENGTHS, Followed, retention_of
from shared.model.instants import written_at
from shared.model.times import WallMillis
from shared.ports.audit_data import BucketShard

HALF: Final = 32
"""Bits of the lower half of a sum, which may be too large for one column."""
MASK: Final = 2**HALF - 1
_PAIRS: Final = (("minute", "hour"), ("minute", "day"), ("hour", "day"))
_TABLES: Final = """
    CREATE TABLE buckets (
        counter TEXT, period TEXT, begin INTEGER, high INTEGER, low INTEGER, PRIMARY KEY (counter, period, begin)
    ) WITHOUT ROWID;
    CREATE TABLE torn (counter TEXT PRIMARY KEY, said TEXT) WITHOUT ROWID;
"""
_ADD: Final = (
    "INSERT INTO buckets VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)
_SUMS: Final = """
    SELECT counter, at, sum(short * high), sum(short * low), sum((1 - short) * high), sum((1 - short) * low)
    FROM (
        SELECT counter, begin - begin % ? AS at, high, low, period = ? AS short FROM buckets WHERE period IN (?, ?)
    ) GROUP BY counter, at ORDER BY counter, at
"""
_PAGE: Final = 500


class BucketSums:
    """Adds up shards of counts by time in tables of its own."""

    def __init__(self, db: sqlite3.Connection, names: Collection[str]) -> None:
        """`names`: only these counters; empty means all."""
        self.compared = 0
        """The longer periods that were compared with the shorter ones in them."""
        self._db = db
        self._names = names
        db.executescript(_TABLES)

    def take(self, page: Sequence[BucketShard]) -> Iterator[tuple[str, str]]:
        """Add a page. Returns the counters with a flaw, and what it is."""
        asked = [one for one in page if not self._names or one.bucket.counter in self._names]
        self._db.executemany(_ADD, [(*one.bucket, one.held >> HALF, one.held & MASK) for one in asked])
        return ((one.bucket.counter, one.flaw) for one in asked)

    def compare(self, followed: Iterable[Followed], now: WallMillis) -> None:
        """Keep, for each counter, the first difference in the table `torn`."""
        followed = [*followed]
        for short, long in _PAIRS:
            last, begin = None, FOR_EVER
            rows = self._db.execute(_SUMS, (LENGTHS[long], short, short, long))
            while page := rows.fetchmany(_PAGE):
                torn = []
                for counter, at, *halves in page:
                    if counter != last:
                        last, begin = counter, whole_since(followed, counter, short, long, now)
                    if at >= begin:
                        self.compared += 1
                        parts, whole = [(high << HALF) + low for high, low in (halves[:2], halves[2:])]
                        if parts != whole:
                            torn.append((counter, _said(short, long, at, parts, whole)))
                self._db.executemany("INSERT OR IGNORE INTO torn VALUES (?, ?)", torn)


def whole_since(followed: Collection[Followed], counter: str, short: str, long: str, now: WallMillis) -> WallMillis:
    """Since when all commits added to both periods, and none of it has expired."""
    begin = 0 if followed else FOR_EVER
    for rules, until in followed:
        kept = [retention_of(rules, counter, by) for by in (short, long)]
        oldest = FOR_EVER if None in kept else now - min(each for each in kept if each is not None)
        begin = max(begin, min(until, oldest))
    return begin


def _said(short: str, long: str, at: WallMillis, parts: int, whole: int) -> str:
    return f"the {short}s of the {long} from {written_at(at / 1_000)} sum to {parts}, and the {long} has {whole}"
