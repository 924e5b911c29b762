"""The overlay of a SQLite broker: its rows of pending messages, what each costs, and how they are followed in
memory.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import orjson

from shared.counters.kept_by_broker import KeptByBroker
from shared.counters.pending import Pending
from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import NewerError, UnreadableError
from shared.model.words import Delivery, Message, View
from shared.sqlite.database import Database, translated
from shared.wire.codec import decode

SLICE: Final = 32_768
"""Bytes of messages to read before other tasks get a turn."""
FORGOTTEN: Final = 5_000
"""Entries to forget before other tasks get a turn."""
EACH: Final = 128
"""The weight of a message besides its data."""


class SqliteOverlay(KeptByBroker):
    """Sees what all processes on the file accepted. If the file is unchanged, a look takes a few microseconds."""

    def __init__(self, database: Database, topic: str) -> None:
        self._database = database
        self._db = database.reader()
        self._topic = topic
        self._turn = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._pending = Pending()
        self._seen: int | None = None
        self._last_message = 0
        self._last_ack: int | None = None

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        pending = await self._current()
        return {counter: pending.view(counter) for counter in counters}

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        async with self._listing:
            pending = await self._current()
            for _ in pending.sort_names():
                await asyncio.sleep(0)
            return pending.names(prefix, after, limit, exact=exact)

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return (await self._current()).holds(keys)

    async def _current(self) -> Pending:
        """The pending messages, as the file has them. Raises `DamagedError` if the file is gone."""
        with translated(self._database.path):
            if self._version() != self._seen:
                async with self._turn:
                    version = self._version()
                    if version != self._seen:
                        await self._catch_up()
                        self._seen = version
        return self._pending

    def _version(self) -> int:
        """A number that changes with each commit of another connection."""
        self._database.check()
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    async def _catch_up(self) -> None:
        """Read what is new, as of one instant. If there is much, other tasks get a turn between slices."""
        self._db.execute("BEGIN")
        try:
            await self._forget_acked()
            new = self._db.execute(
                "SELECT seq, data, attributes, published FROM messages WHERE seq > ? ORDER BY seq",
                (self._last_message,),
            )
            size = 0
            for seq, data, attributes, published in new:
                self._add(seq, data, attributes, published)
                size += len(data) + EACH
                if size > SLICE:
                    size = 0
                    await asyncio.sleep(0)
        finally:
            self._db.execute("ROLLBACK")

    async def _forget_acked(self) -> None:
        # Two subqueries, since min() and max() in one SELECT would scan the table.
        first, last = self._db.execute(
            "SELECT coalesce((SELECT min(number) FROM acks), 0), coalesce((SELECT max(number) FROM acks), 0)"
        ).fetchone()
        (floor,) = self._db.execute("SELECT floor FROM broker").fetchone()
        if self._last_ack is None or self._last_ack < first - 1:
            self._pending = Pending(floor)
            self._last_message = 0
        elif last > self._last_ack:
            rows = self._db.execute("SELECT number, seqs FROM acks WHERE number > ? ORDER BY number", (self._last_ack,))
            gone = 0
            for number, seqs in rows:
                for seq_or_counter in orjson.loads(seqs):
                    if isinstance(seq_or_counter, str):
                        self._pending.raise_floor(seq_or_counter, floor)
                        gone += 1
                    else:
                        gone += 1 + self._pending.settle((seq_or_counter,), floor)
                    if gone > FORGOTTEN:
                        gone = 0
                        await asyncio.sleep(0)
                self._last_ack = number
        self._last_ack = last

    def _add(self, seq: int, data: bytes, attributes: str, published: BrokerMillis) -> None:
        self._last_message = seq
        delivery = Delivery("", Message(data, orjson.loads(attributes)), str(seq), published)
        try:
            self._pending.add(seq, *decode(delivery, self._topic))
        except UnreadableError:
            return  # the flusher buries it
        except NewerError:
            self._pending.add_unknown(seq)


# The rows of pending messages: what each costs, and how they are forgotten.


QUOTE: Final = 12
"""The weight of a quotation mark, in bytes. Each string has two. So pending increments take less than 8 times this
weight in memory.
"""
ACKS_KEPT: Final = 10_000
"""Overlays that are further behind read all pending messages again."""
_FORGET: Final = (
    "DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?)) RETURNING data, attributes, increments, buried"
)


def weight_of(data: bytes, attributes: str) -> int:
    """The weight of a message in COUNTERSINK_MAX_PENDING_BYTES. Each name in it takes memory in all processes that
    answer reads, which is much more than its bytes if it is short.
    """
    return len(data) + len(attributes) + QUOTE * data.count(b'"')


def forget(db: sqlite3.Connection, numbers: Sequence[int], floor: Instant) -> None:
    """Delete messages that exist and are settled. Buried ones are no longer part of the bytes that wait."""
    seqs = orjson.dumps(numbers).decode()
    weight = increments = 0
    for data, attributes, its, buried in db.execute(_FORGET, (seqs,)):
        if buried is None:
            weight += weight_of(data, attributes)
            increments += its
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    took_off(db, weight, increments)
    _tell(db, seqs)


def took_off(db: sqlite3.Connection, weight: int, increments: int) -> None:
    """Take off what is no longer pending."""
    db.execute("UPDATE broker SET bytes = bytes - ?, increments = increments - ?", (weight, increments))


def raise_floors(db: sqlite3.Connection, counters: Sequence[str], floor: Instant) -> None:
    """Void what any process read of the counters before `floor`."""
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    _tell(db, orjson.dumps(counters).decode())


def _tell(db: sqlite3.Connection, what: str) -> None:
    """Tell the overlays of all processes which messages were deleted, or the names of counters that have changed."""
    db.execute("INSERT INTO acks (seqs) VALUES (?)", (what,))
    db.execute("DELETE FROM acks WHERE number <= (SELECT max(number) FROM acks) - ?", (ACKS_KEPT,))
