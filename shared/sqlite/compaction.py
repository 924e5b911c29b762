"""Compacts a counter in a SQLite file, in the caller's transaction."""

import sqlite3

from shared.model.errors import AlreadyAppliedError, CrowdedError
from shared.model.sharding import moved
from shared.model.words import Receipt
from shared.sqlite import receipts


def number_of(db: sqlite3.Connection, counter: str) -> int:
    """The counter's number of shards; 0 without a config."""
    row = db.execute("SELECT num_shards FROM configs WHERE counter = ?", (counter,)).fetchone()
    return row[0] if row else 0


def compact(db: sqlite3.Connection, counter: str, num_shards: int, receipt: Receipt) -> int:
    """See `ShardNumbers.compact`. Any number of shards fits into the one transaction."""
    if db.execute("SELECT 1 FROM receipts WHERE key = ?", (receipt.key,)).fetchone():
        raise AlreadyAppliedError("the receipt of this compaction exists")
    if (number := number_of(db, counter)) <= num_shards:
        return number
    counts = dict(db.execute("SELECT shard, count FROM shards WHERE counter = ?", (counter,)).fetchall())
    leaving = sum(count for shard, count in counts.items() if shard >= num_shards)
    given = moved([counts.get(shard, 0) for shard in range(num_shards)], leaving)
    if given is None:
        raise CrowdedError(f"{counter} holds too much for {num_shards} shards")
    (time,) = db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()
    db.execute("DELETE FROM shards WHERE counter = ? AND shard >= ?", (counter, num_shards))
    for shard, part in enumerate(given):
        if part:  # which may be beyond int64, though what the shard holds then is not
            row = (counter, shard, counts.get(shard, 0) + part)
            db.execute("REPLACE INTO shards (counter, shard, count) VALUES (?, ?, ?)", row)
    db.execute("UPDATE configs SET num_shards = ? WHERE counter = ?", (num_shards, counter))
    receipts.insert(db, [receipt], time)
    return num_shards
