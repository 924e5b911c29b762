"""Reads all that a file's store holds, in one read transaction, and keeps the sums of receipts that are swept. Says
whether the store accounts for all that the broker accepted.
"""

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Final

from shared.model import receipt_notes
from shared.model.buckets import LENGTHS, Followed, StoreMillis, TimeBucket
from shared.model.envelope import Backlog
from shared.model.words import Receipt
from shared.ports.store import Balance, BucketShard, Config, Shard, StoredReceipt
from shared.runtime.clock import Clock
from shared.sqlite import buckets, ids
from shared.sqlite.database import Database

PAGE: Final = 500
MOST_READ: Final = 2**20
"""Bytes of notes after which a page ends. One note may have some hundred thousand."""
MOST_CARRIED: Final = 2**20
"""Bytes of notes after which a sweep ends, since others wait for it: some hundredths of a second."""
_BALANCE: Final = "SELECT increments, taken - applied - deduplicated - dead - increments, dead FROM broker, store"
_OLDEST: Final = (  # messages are leased in their order, so the oldest has a lease, or is the first that never had one
    "SELECT published FROM messages WHERE seq = coalesce((SELECT min(seq) FROM leases),"
    " (SELECT min(seq) FROM messages WHERE seq > (SELECT head FROM broker)))"
)
_LOW: Final = 32
_MASK: Final = 2**_LOW - 1
_CARRY: Final = (
    "INSERT INTO carried VALUES (?, ?, ?)"
    " ON CONFLICT (counter) DO UPDATE SET high = high + excluded.high, low = low + excluded.low"
)


class SqliteAuditData:
    """What one read transaction sees. In WAL mode it sees one instant, however long it takes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        page: list[StoredReceipt] = []
        size = 0
        others = self._db.execute("SELECT key, expires, state, note, time FROM receipts ORDER BY key")
        for *receipt, time in merge(others, *ids.rows(self._db), key=itemgetter(0)):
            kept = StoredReceipt(Receipt(*receipt), time)
            page.append(kept)
            size += len(kept.receipt.note)
            if len(page) == PAGE or size > MOST_READ:
                yield page
                page, size = [], 0
        if page:
            yield page

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        both = (
            "SELECT counter, num_shards, coalesce(high, 0), coalesce(low, 0) FROM configs LEFT JOIN carried"
            " USING (counter) UNION ALL SELECT counter, 0, high, low FROM carried"
            " WHERE counter NOT IN (SELECT counter FROM configs)"
        )
        async for rows in self._pages(both):
            yield [Config(counter, number, (high << _LOW) + low, None) for counter, number, high, low in rows]

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async for rows in self._pages("SELECT counter, shard, count, 0 FROM shards ORDER BY counter, shard"):
            yield [Shard(*row) for row in rows]

    async def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        async for rows in self._pages("SELECT counter, period, begin, count FROM buckets"):
            yield [_bucket_of(*row) for row in rows]

    async def followed(self) -> Sequence[Followed]:
        return buckets.followed(self._db)

    async def _pages(self, query: str) -> AsyncIterator[list[Any]]:
        cursor = self._db.execute(query)
        while rows := cursor.fetchmany(PAGE):
            yield rows


def _bucket_of(counter: str, period: str, begin: int, count: Any) -> BucketShard:
    """A row, which another program may have written."""
    bucket = TimeBucket(counter, period, begin)
    if type(count) is not int:
        return BucketShard(bucket, 0, f"its count of the {period} from {begin} is no whole number of 64 bits")
    if begin % LENGTHS.get(period, begin + 1):
        return BucketShard(bucket, 0, f"it has a count of the {period} from {begin}, and no such {period} begins then")
    return BucketShard(bucket, count)


def balance_of(database: Database) -> Balance:
    """The balance now. Each sum changes in the transaction that changes what it counts, so a crash can't make them
    disagree. Short enough for the event loop.
    """
    with database.reading() as db:
        return Balance(*db.execute(_BALANCE).fetchone())


def backlog_of(database: Database, clock: Clock) -> Backlog:
    """What waits in messages that are not buried. Short enough for the event loop."""
    with database.reading() as db:
        (increments,) = db.execute("SELECT increments FROM broker").fetchone()
        oldest = db.execute(_OLDEST).fetchone()
    return Backlog(increments, max(clock.now() - oldest[0] / 1_000, 0) if oldest else 0.0)


def sweep(db: sqlite3.Connection, before: StoreMillis, limit: int) -> int:
    """Delete receipts that expired before `before`, and keep their sums in `carried`. 0 stands for no expiry."""
    rows = db.execute("SELECT key, note FROM receipts WHERE expires > 0 AND expires < ? LIMIT ?", (before, limit))
    keys: list[tuple[str]] = []
    sums: dict[str, int] = {}
    size = 0
    for key, note in rows:
        keys.append((key,))
        for counter, delta in receipt_notes.read(note).sums.items():
            sums[counter] = sums.get(counter, 0) + delta
        size += len(note)
        if size > MOST_CARRIED:
            break
    rows.close()
    carry(db, sums)
    db.executemany("DELETE FROM receipts WHERE key = ?", keys)
    return len(keys)


def carry(db: sqlite3.Connection, sums: Mapping[str, int]) -> None:
    db.executemany(_CARRY, [(counter, delta >> _LOW, delta & _MASK) for counter, delta in sums.items()])
