"""Adds sums to the shards in a SQLite file, and raises the counters' numbers of shards."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from shared.model.errors import ShardFullError, ShrunkError
from shared.model.sharding import number_for, was_compacted
from shared.model.words import SHARD_FULL, ShardAdd

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
