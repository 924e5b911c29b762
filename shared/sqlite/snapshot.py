"""Totals and receipts of one instant."""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from shared.counters.pending import ids_of
from shared.model.buckets import NEVER, Counts, Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.dead_letters import entries_of_dead
from shared.model.words import Guard, Total
from shared.sqlite import buckets, receipts
from shared.sqlite.database import json_of

SLICE: Final = 200
"""Counters to read before other tasks get a turn."""
_TOTALS: Final = (
    "SELECT value, coalesce(num_shards, 0), version, deleted, coalesce(count, 0), coalesce(updated, 0)"
    " FROM json_each(?) LEFT JOIN configs ON configs.counter = value LEFT JOIN guards ON guards.counter = value"
    " LEFT JOIN shards ON shards.counter = value AND shard < num_shards"
)
"""A row for each shard; one for a counter without any."""
_NO_GUARD: Final = Guard()


def totals_of(db: sqlite3.Connection, counters: str) -> dict[str, Total]:
    """The totals of these counters, which are a JSON array, without what dead receipts say of them."""
    totals: dict[str, Total] = {}
    for counter, num_shards, version, deleted, count, updated in db.execute(_TOTALS, (counters,)):
        if counter in totals:  # another shard; sum() in SQL would fail beyond int64
            before = totals[counter]
            totals[counter] = before._replace(value=before.value + count, updated=max(before.updated, updated))
        else:
            guard = Guard(version, bool(deleted)) if version else _NO_GUARD
            totals[counter] = Total(count, num_shards, guard, (), NEVER, "", updated)
    return totals


class SqliteSnapshot:
    """A read transaction. In WAL mode it sees one instant."""

    def __init__(self, db: sqlite3.Connection, time: Instant, as_of: WallSeconds, now: StoreMillis) -> None:
        self.db = db
        self.time = time
        self.as_of = as_of
        self.now = now

    async def read(self, counters: Sequence[str], keys: Collection[str]) -> tuple[Mapping[str, Total], Collection[str]]:
        totals: dict[str, Total] = {}
        names = [*dict.fromkeys(counters)]
        for begin in range(0, len(names), SLICE):
            if begin:
                await asyncio.sleep(0)
            some = json_of(names[begin : begin + SLICE])
            totals |= totals_of(self.db, some)
            for counter, dead in receipts.dead_of(self.db, some).items():
                entries, until = entries_of_dead(dead, counter)
                totals[counter] = totals[counter]._replace(dead=entries, sure_until=until)
        ids = [key for total in totals.values() if total.dead for key in ids_of(total.dead)]
        return totals, await receipts.settled_among(self.db, keys if not ids else {*keys, *ids})

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        return await buckets.counts_of(self.db, counter, by, begin, end)
