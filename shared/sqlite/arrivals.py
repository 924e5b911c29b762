"""Writes what a copy brings into a SQLite file, beside its commits."""

import sqlite3
from collections.abc import Sequence
from typing import Final

import orjson

from shared.model.buckets import BucketAdd, Followed, followed_of, followed_too, text_of
from shared.model.jobs import JobState
from shared.sqlite.database import Database
from shared.sqlite.jobs import KEEP, row_of

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
            (text,) = db.execute("SELECT followed FROM store").fetchone()
            known: Sequence[Followed] = followed_of(text)
            for one in followed:
                known = followed_too(known, one)
            db.execute("UPDATE store SET followed = ?", (text_of(known),))

        await self._database.write(work)

    async def held(self, counts: Sequence[BucketAdd]) -> Sequence[int | None]:
        asked = orjson.dumps([(*one.bucket, one.shard) for one in counts]).decode()
        with self._database.reading() as db:
            return [count for (count,) in db.execute(_HELD, (asked,))]

    async def put(self, counts: Sequence[BucketAdd]) -> None:
        rows = [(*one.bucket, one.shard, one.delta, one.expires) for one in counts]
        await self._database.write(lambda db: db.executemany(_PUT, rows).rowcount)

    async def keep(self, jobs: Sequence[JobState]) -> None:
        await self._database.write(lambda db: db.executemany(KEEP, map(row_of, jobs)).rowcount)
