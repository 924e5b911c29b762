"""Counts by time: a row for each shard of a bucket, and what is known of dates; what a copy writes of both."""

import asyncio
import sqlite3
from collections.abc import Sequence
from functools import reduce
from typing import Final

from shared.model.buckets import (
    BucketAdd,
    ByTime,
    Counts,
    Dates,
    Followed,
    StoreMillis,
    WallMillis,
    followed_of,
    followed_too,
    text_of,
)
from shared.model.errors import ShardFullError
from shared.model.jobs import JobState
from shared.model.words import SHARD_FULL
from shared.sqlite.database import Database, json_of
from shared.sqlite.jobs import KEEP, row_of

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


# Writes what a copy brings into the file, beside its commits.


_HELD: Final = (
    "SELECT count FROM json_each(?) AS asked LEFT JOIN buckets ON counter = asked.value ->> 0"
    " AND period = asked.value ->> 1 AND begin = asked.value ->> 2 AND shard = asked.value ->> 3 ORDER BY asked.key"
)
_PUT: Final = (
    "INSERT INTO buckets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (counter, period, begin, shard)"
    " DO UPDATE SET count = excluded.count, expires = max(expires, excluded.expires)"
)


class SqliteArrivals:
    """Implements `Arrivals`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def follow(self, followed: Sequence[Followed]) -> None:
        def work(db: sqlite3.Connection) -> None:
            known = reduce(followed_too, followed, _dates(db).followed)
            db.execute("UPDATE store SET followed = ?", (text_of(known),))

        await self._database.write(work)

    async def held(self, counts: Sequence[BucketAdd]) -> Sequence[int | None]:
        asked = json_of((*one.bucket, one.shard) for one in counts)
        return [count for (count,) in self._database.read(_HELD, asked)]

    async def put(self, counts: Sequence[BucketAdd]) -> None:
        rows = [(*one.bucket, one.shard, one.delta, one.expires) for one in counts]
        await self._database.write(lambda db: db.executemany(_PUT, rows).rowcount)

    async def keep(self, jobs: Sequence[JobState]) -> None:
        await self._database.write(lambda db: db.executemany(KEEP, map(row_of, jobs)).rowcount)
