"""Counts by time: a row for each shard of a bucket, and what is known of dates."""

import asyncio
import sqlite3
from typing import Final

from shared.model.buckets import ByTime, Counts, Dates, Followed, StoreMillis, WallMillis, followed_of, text_of
from shared.model.errors import ShardFullError
from shared.model.words import SHARD_FULL

_ADD_TO_BUCKET: Final = (
    "INSERT INTO buckets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (counter, period, begin, shard)"
    " DO UPDATE SET count = count + excluded.count, expires = max(expires, excluded.expires)"
    " WHERE count BETWEEN ? AND ?"
)
_SWEEP_BUCKETS: Final = (
    "DELETE FROM buckets WHERE (counter, period, begin, shard) IN"
    " (SELECT counter, period, begin, shard FROM buckets WHERE expires < ? LIMIT ?)"
)
_READ_BUCKETS: Final = "SELECT begin, count FROM buckets WHERE counter = ? AND period = ? AND begin >= ? AND begin < ?"
ROWS_AT_ONCE: Final = 2_000
"""Rows to read before other tasks get a turn."""


def add(db: sqlite3.Connection, by_time: ByTime, wall: WallMillis) -> None:
    """Add to buckets. `wall`: the present."""
    before = _dates(db)
    after, adds = before.after(by_time, wall)
    full = set()
    for bucket, shard, delta, expires in adds:
        if not db.execute(_ADD_TO_BUCKET, (*bucket, shard, delta, expires, -SHARD_FULL, SHARD_FULL)).rowcount:
            full.add((bucket.counter, shard))
    if full:
        raise ShardFullError(full)
    _keep_dates(db, before, after)


def close(db: sqlite3.Connection, until: WallMillis, wall: WallMillis) -> None:
    before = _dates(db)
    _keep_dates(db, before, before.closing(until, wall))


def _keep_dates(db: sqlite3.Connection, before: Dates, after: Dates) -> None:
    if after.followed is not before.followed:
        db.execute("UPDATE store SET followed = ?", (text_of(after.followed),))
    if after[1:] != before[1:]:
        db.execute("UPDATE dates SET closed = ?, latest = ?", after[1:])


async def counts_of(db: sqlite3.Connection, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
    found: dict[WallMillis, int] = {}
    rows = db.execute(_READ_BUCKETS, (counter, by, begin, end))
    while some := rows.fetchmany(ROWS_AT_ONCE):
        for when, count in some:  # summed in Python, as totals are
            found[when] = found.get(when, 0) + count
        if len(some) == ROWS_AT_ONCE:
            await asyncio.sleep(0)
    followed, closed, _ = _dates(db)
    return Counts(found, followed, closed)


def sweep(db: sqlite3.Connection, now: StoreMillis, limit: int) -> int:
    return db.execute(_SWEEP_BUCKETS, (now, max(limit, 0))).rowcount


def _dates(db: sqlite3.Connection) -> Dates:
    return Dates(followed(db), *db.execute("SELECT closed, latest FROM dates").fetchone())


def followed(db: sqlite3.Connection) -> list[Followed]:
    (text,) = db.execute("SELECT followed FROM store").fetchone()
    return followed_of(text)
