"""Counts by time in a SQLite file: a row for each shard of a bucket, and since when the rules have been followed."""

import asyncio
import sqlite3
from typing import Final

import orjson

from shared.model.buckets import ByTime, Counts, Whole, since_of, text_of, whole_after
from shared.model.errors import ShardFullError
from shared.model.times import StoreMillis, WallMillis
from shared.model.words import SHARD_FULL

TABLES: Final = """
    -- Counts by time. `rules` in `store` are those that the last commit of a flusher followed, and `whole` says since
    -- when all commits have followed each of them.
    CREATE TABLE buckets (
        counter TEXT NOT NULL,
        period TEXT NOT NULL,
        begin INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
        expires INTEGER NOT NULL,
        PRIMARY KEY (counter, period, begin, shard)
    ) WITHOUT ROWID;
    CREATE INDEX buckets_expires ON buckets (expires);
"""
_ADD: Final = (
    "INSERT INTO buckets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (counter, period, begin, shard)"
    " DO UPDATE SET count = count + excluded.count, expires = max(expires, excluded.expires)"
    " WHERE count BETWEEN ? AND ?"
)
_SWEEP: Final = (
    "DELETE FROM buckets WHERE (counter, period, begin, shard) IN"
    " (SELECT counter, period, begin, shard FROM buckets WHERE expires < ? LIMIT ?)"
)
_READ: Final = "SELECT begin, count FROM buckets WHERE counter = ? AND period = ? AND begin >= ? AND begin < ?"
SLICE: Final = 2_000
"""Rows to read before other tasks get a turn."""


def add(db: sqlite3.Connection, by_time: ByTime, rules: str, wall: WallMillis) -> None:
    """Add to buckets. `rules`: those that the last commit followed; `wall`: the present, or 0 for the first commit."""
    full = set()
    for bucket, shard, delta, expires in by_time.adds:
        if not db.execute(_ADD, (*bucket, shard, delta, expires, -SHARD_FULL, SHARD_FULL)).rowcount:
            full.add((bucket.counter, shard))
    if full:
        raise ShardFullError(full)
    if (text := text_of(by_time.rules)) != rules:
        whole = orjson.dumps([tuple(one) for one in whole_after(_whole(db), by_time.rules, wall)]).decode()
        db.execute("UPDATE store SET rules = ?, whole = ?", (text, whole))


async def counts(db: sqlite3.Connection, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
    """See `SnapshotByTime`."""
    found: dict[WallMillis, int] = {}
    rows = db.execute(_READ, (counter, by, begin, end))
    while some := rows.fetchmany(SLICE):
        for when, count in some:  # summed in Python, as totals are
            found[when] = found.get(when, 0) + count
        if len(some) == SLICE:
            await asyncio.sleep(0)
    (commits,) = db.execute("SELECT time FROM store").fetchone()
    return Counts(found, since_of(_whole(db), counter, by) if commits else 0)


def sweep(db: sqlite3.Connection, now: StoreMillis, limit: int) -> int:
    return db.execute(_SWEEP, (now, max(limit, 0))).rowcount


def _whole(db: sqlite3.Connection) -> list[Whole]:
    (text,) = db.execute("SELECT whole FROM store").fetchone()
    return [Whole(*one) for one in orjson.loads(text)]
