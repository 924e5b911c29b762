"""Adds sums to the shards in a SQLite file, raises the counters' numbers of shards, and compacts a counter."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from shared.model.errors import AlreadyAppliedError, CrowdedError, ShardFullError, ShrunkError
from shared.model.sharding import moved, number_for, was_compacted
from shared.model.words import SHARD_FULL, Receipt, ShardAdd
from shared.sqlite import receipts

_FIND: Final = (
    "SELECT counter, shard, count FROM json_each(?) AS asked"
    " CROSS JOIN shards ON counter = json_extract(asked.value, '$[0]')"
    " AND shard = json_extract(asked.value, '$[1]')"
)
_NUMBERS: Final = "SELECT counter, num_shards FROM json_each(?) CROSS JOIN configs ON counter = value"
_ADD: Final = (
    "INSERT INTO shards (counter, shard, count) VALUES (?, ?, ?)"
    " ON CONFLICT (counter, shard) DO UPDATE SET count = count + excluded.count"
)
_RAISE: Final = (
    "INSERT INTO configs (counter, num_shards) VALUES (?, ?)"
    " ON CONFLICT (counter) DO UPDATE SET num_shards = max(num_shards, excluded.num_shards)"
)


def numbers_of(db: sqlite3.Connection, counters: Iterable[str]) -> dict[str, int]:
    """The number of shards of each counter that has a config."""
    return dict(db.execute(_NUMBERS, (_json(counters),)).fetchall())


def raise_shards(db: sqlite3.Connection, numbers: Iterable[tuple[str, int]]) -> None:
    """Each counter has so many shards from now on, or more."""
    db.executemany(_RAISE, numbers)


def add(db: sqlite3.Connection, adds: Sequence[ShardAdd]) -> None:
    """Add to all of these shards. The errors are those of `Commits.apply`."""
    there = {(counter, shard): count for counter, shard, count in db.execute(_FIND, (_json(one[:2] for one in adds),))}
    if full := [shard for shard, count in there.items() if not -SHARD_FULL <= count <= SHARD_FULL]:
        raise ShardFullError(full)
    if new := [one for one in adds if one[:2] not in there]:
        numbers = numbers_of(db, {one.counter for one in new})
        if shrunk := {one.counter for one in new if was_compacted(one, numbers.get(one.counter, 0))}:
            raise ShrunkError(shrunk)
        raise_shards(db, [(one.counter, number_for(one, numbers.get(one.counter, 0))) for one in new])
    db.executemany(_ADD, [one[:3] for one in adds])


def _json(values: Iterable[object]) -> str:
    return orjson.dumps([*values]).decode()


# Compacts a counter in a SQLite file, in the caller's transaction.


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
