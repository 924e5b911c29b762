"""Reads all that a file's store holds, in one read transaction, and says whether it accounts for all that the broker
accepted.
"""

from collections.abc import AsyncIterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Final

from shared.model.buckets import LENGTHS, Followed, TimeBucket, begin_of
from shared.model.imports import Mark
from shared.model.jobs import JobState
from shared.model.words import Backlog, Receipt, batches
from shared.ports.store import Balance, BucketShard, Config, Shard, Snapshot, StoredReceipt
from shared.runtime.clock import Clock
from shared.sqlite.buckets import followed
from shared.sqlite.database import Database
from shared.sqlite.jobs import COLUMNS, state_of
from shared.sqlite.receipts import LOW, id_rows
from shared.sqlite.snapshot import SqliteSnapshot

PAGE: Final = 500
MOST_IN_PAGE: Final = 2**20
"""Bytes of notes after which a page ends. One note may have hundreds of thousands."""
_BALANCE: Final = "SELECT increments, taken - applied - deduplicated - dead - increments, dead FROM broker, store"
_BUCKETS: Final = (
    "SELECT counter, period, begin, shard, count, expires FROM buckets ORDER BY counter, period, begin, shard"
)
_OLDEST: Final = (  # messages are leased in their order, so the oldest has a lease, or is the first that never had one
    "SELECT published FROM messages WHERE seq = coalesce((SELECT min(seq) FROM leases),"
    " (SELECT min(seq) FROM messages WHERE seq > (SELECT head FROM broker)))"
)


class SqliteAuditData:
    """What one read transaction sees. In WAL mode it sees one instant, however long it takes."""

    def __init__(self, snapshot: SqliteSnapshot) -> None:
        self.snapshot: Snapshot = snapshot
        self._db = snapshot.db

    async def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        others = self._db.execute("SELECT key, expires, state, note, time FROM receipts ORDER BY key")
        rows = merge(others, *id_rows(self._db), key=itemgetter(0))
        kept = (StoredReceipt(Receipt(*receipt), time) for *receipt, time in rows)
        for page, _ in batches(kept, lambda one: len(one.receipt.note), MOST_IN_PAGE, PAGE):
            yield page

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        both = (
            "SELECT counter, num_shards, coalesce(high, 0), coalesce(low, 0) FROM configs LEFT JOIN carried"
            " USING (counter) UNION ALL SELECT counter, 0, high, low FROM carried"
            " WHERE counter NOT IN (SELECT counter FROM configs)"
        )
        async for rows in self._pages(both):
            yield [Config(counter, number, (high << LOW) + low, None) for counter, number, high, low in rows]

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async for rows in self._pages("SELECT counter, shard, count, 0 FROM shards ORDER BY counter, shard"):
            yield [Shard(*row) for row in rows]

    async def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        async for rows in self._pages(_BUCKETS):
            yield [
                _bucket_of(TimeBucket(*bucket), count)._replace(shard=shard, expires=expires)
                for *bucket, shard, count, expires in rows
            ]

    async def marks(self) -> AsyncIterator[Sequence[Mark]]:
        async for rows in self._pages("SELECT source, counter, total FROM marks ORDER BY source, counter"):
            yield [Mark(source, counter, 0, int(total)) for source, counter, total in rows]

    async def jobs(self) -> AsyncIterator[Sequence[JobState]]:
        async for rows in self._pages(f"SELECT {COLUMNS} FROM jobs ORDER BY id"):  # noqa: S608 (a constant)
            yield [*map(state_of, rows)]

    async def followed(self) -> Sequence[Followed]:
        return followed(self._db)

    async def _pages(self, query: str) -> AsyncIterator[list[Any]]:
        cursor = self._db.execute(query)
        while rows := cursor.fetchmany(PAGE):
            yield rows


def _bucket_of(bucket: TimeBucket, count: Any) -> BucketShard:
    """A row, which another program may have written."""
    _, period, begin = bucket
    if type(count) is not int:
        return BucketShard(bucket, 0, f"its count of the {period} from {begin} is no whole number of 64 bits")
    if period not in LENGTHS or begin != begin_of(period, begin):
        return BucketShard(bucket, 0, f"it has a count of the {period} from {begin}, and no such {period} begins then")
    return BucketShard(bucket, count)


def balance_of(database: Database) -> Balance:
    """The balance now. Each sum changes in the transaction that changes what it counts, so a crash can't make them
    disagree. Short enough for the event loop.
    """
    (numbers,) = database.read(_BALANCE)
    return Balance(*numbers)


def backlog_of(database: Database, clock: Clock) -> Backlog:
    """What waits in messages that are not buried. Short enough for the event loop."""
    ((increments,),) = database.read("SELECT increments FROM broker")
    oldest = [published for (published,) in database.read(_OLDEST)]
    return Backlog(increments, max(clock.now() - oldest[0] / 1_000, 0) if oldest else 0.0)
