"""The broker in a SQLite file: messages with leases and redelivery like those of Pub/Sub, dead letters, and the
overlay, which is the pending messages.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from typing import Final

import orjson

from shared.counters.pending import Pending
from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import NewerError, OverloadedError, SettingsError, UnreadableError
from shared.model.words import Delivery, Envelope, Letter, Message, View, batches
from shared.ports.broker import Check, at_any_time
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.retry import Drain
from shared.sqlite.database import Database, FileTime, connect_to, json_of, translated
from shared.wire.codec import decode, increments_of

POLL: Final = 0.01
"""Seconds between two looks for messages. A look takes a few microseconds."""
ALERT: Final = 1.0
"""Seconds after something was found in which looks continue at their full rate."""
QUIET: Final = 0.1
"""Seconds between two looks after that, unless this process writes to the file. They are for what others write."""
SMALL: Final = 500
COMFORT: Final = 0.9
"""The part of the limit that is expected to be pending when a refused client is told to come back."""
LONGEST_LEASE: Final = 600_000
"""Milliseconds: the most that COUNTERSINK_LEASE allows."""
_COLUMNS: Final = "m.seq, data, attributes, published"
_NEW: Final = f"SELECT {_COLUMNS}, 1 FROM messages m, broker WHERE m.seq > head ORDER BY m.seq LIMIT ?"  # noqa: S608 (constant)
_LEASE: Final = (
    "INSERT INTO leases (seq, until, attempt) VALUES (?, ?, ?)"
    " ON CONFLICT (seq) DO UPDATE SET until = excluded.until, attempt = excluded.attempt"
)
_BURY: Final = "UPDATE messages SET buried = ? WHERE seq = ? RETURNING data, attributes, increments"
_INSERT: Final = (
    "INSERT OR IGNORE INTO messages (data, attributes, published, once, increments, since)"
    " SELECT ?, ?, ?, ?, ?, now FROM store, broker WHERE bytes = 0 OR bytes <= ?"
)
_ANY: Final = 2**62
LOOK_AT_DISK: Final = 0.01
"""Seconds between two looks at its free space, if there was enough for all that this process has published since."""


def topic_of(database: Database) -> str:
    """The name of the broker in this file."""
    ((name,),) = database.read("SELECT name FROM broker")
    return str(name)


def claim(database: Database, topic: str) -> None:
    """Reserve the file for that topic, for ever. Raises `SettingsError` if it belongs to another topic."""
    with closing(connect_to(database.path)) as db:
        db.execute("UPDATE broker SET name = ? WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence)", (topic,))
        (name,) = db.execute("SELECT name FROM broker").fetchone()
    if name != topic:
        raise SettingsError(f"{database.path} holds envelopes for {name}, not for {topic}: name another file")


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
    answer reads, which is much more than its bytes if it is short. `schema.ACCOUNTS` computes the same in SQL.
    """
    return len(data) + len(attributes) + QUOTE * data.count(b'"')


def _forget(db: sqlite3.Connection, numbers: Sequence[int], floor: Instant) -> None:
    """Delete messages that exist and are settled. Buried ones are no longer part of the bytes that wait."""
    seqs = json_of(numbers)
    weight = increments = 0
    for data, attributes, its, buried in db.execute(_FORGET, (seqs,)):
        if buried is None:
            weight += weight_of(data, attributes)
            increments += its
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    _took_off(db, weight, increments)
    _tell(db, seqs)


def _took_off(db: sqlite3.Connection, weight: int, increments: int) -> None:
    db.execute("UPDATE broker SET bytes = bytes - ?, increments = increments - ?", (weight, increments))


def raise_floors(db: sqlite3.Connection, counters: Sequence[str], floor: Instant) -> None:
    """Void what any process read of the counters before `floor`."""
    db.execute("UPDATE broker SET floor = max(floor, ?)", (floor,))
    _tell(db, json_of(counters))


def _tell(db: sqlite3.Connection, what: str) -> None:
    """Tell the overlays of all processes which messages were deleted, or the names of counters that have changed."""
    db.execute("INSERT INTO acks (seqs) VALUES (?)", (what,))
    db.execute("DELETE FROM acks WHERE number <= (SELECT max(number) FROM acks) - ?", (ACKS_KEPT,))


class SqlitePublisher:
    """Publishes to the file. When `publish` returns, its transaction is synced."""

    def __init__(self, database: Database, clock: Clock, max_pending_bytes: int) -> None:
        self._database = database
        self._clock = clock
        self._time = FileTime(database, clock)
        self._max_pending_bytes = max_pending_bytes
        self._drain = Drain(max_pending_bytes / 4)
        self._left = 0
        """Bytes pending after the last look. What other processes publish makes the drain look slower than it is."""
        self._spare = 0
        """Bytes that may become pending before the next look at the disk, which is due at `_next_look`."""
        self._next_look = 0.0

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        now = BrokerMillis(int(self._clock.now() * 1000))
        rows = [(m.data, orjson.dumps(m.attributes).decode(), now, m.once, increments_of(m)) for m in messages]
        size = sum(weight_of(row[0], row[1]) for row in rows)

        def insert(db: sqlite3.Connection) -> int:
            """Insert the messages. Returns how many increments were in those that were dropped as repeated."""
            check()
            if size > self._spare or self._clock.monotonic() >= self._next_look:
                self._admit(db, size)
            left, dropped, most = size, 0, self._max_pending_bytes - size
            for row in rows:
                new = db.execute(_INSERT, (*row, most)).rowcount
                if not new and most != _ANY:  # it is repeated, or what is pending kept it out
                    self._admit(db, size)
                    new = db.execute(_INSERT, (*row, _ANY)).rowcount
                if not new:
                    left -= weight_of(row[0], row[1])
                    dropped += row[4]
                most = _ANY  # the first one stood for all
            self._spare -= left
            self._left += left
            return dropped

        metrics.DEDUPLICATED.inc(await self._database.write(insert, is_one=len(rows) == 1))

    async def check(self) -> None:
        """Write what a publish would write, and delete it in the same transaction."""

        def touch(db: sqlite3.Connection) -> None:
            self._admit(db, SMALL)
            db.execute(_INSERT, (bytes(SMALL), "{}", 0, None, 0, _ANY))
            db.execute("DELETE FROM messages WHERE seq = last_insert_rowid()")
            _took_off(db, weight_of(bytes(SMALL), "{}"), 0)

        await self._database.write(touch)

    def pending(self) -> tuple[int, int]:
        with self._database.reading() as db:
            (pending,) = db.execute("SELECT bytes FROM broker").fetchone()
        return pending, self._max_pending_bytes

    def weigh(self, message: Message) -> int:
        return weight_of(message.data, orjson.dumps(message.attributes).decode())

    def _admit(self, db: sqlite3.Connection, size: int) -> None:
        """Raise an error if there is no room. Call it in the writer's thread only."""
        self._time.keep(db)
        (pending,) = db.execute("SELECT bytes FROM broker").fetchone()
        now = self._clock.monotonic()
        if self._left > self._max_pending_bytes // 2:
            self._drain.left(max(self._left - pending, 0), now)
        else:
            self._drain.begins(now)
        self._left = pending
        if pending and pending + size > self._max_pending_bytes:
            enough = int(self._max_pending_bytes * COMFORT)
            raise OverloadedError(
                f"{pending} bytes wait to be applied, and COUNTERSINK_MAX_PENDING_BYTES allows"
                f" {self._max_pending_bytes}: check that a flusher is running",
                self._drain.seconds(max(pending + size, self._max_pending_bytes) - enough, now),
            )
        self._spare = self._database.reserve.check(db, pending + size) + size
        self._next_look = now + LOOK_AT_DISK


class Leases:
    """Rows of a table that are leased, each to one holder at a time: `until` says until when, `attempt` which lease it
    is. A token names a row and one lease of it.
    """

    def __init__(self, database: Database, clock: Clock, table: str) -> None:
        self._database = database
        self._clock = clock
        self._table = table
        self._found = self._looked = float("-inf")
        self.lapsed = (
            f"(SELECT * FROM {table} WHERE until <= :now UNION ALL SELECT * FROM {table} WHERE until > :longest)"  # noqa: S608 (a constant)
        )
        """The rows whose leases have ended, or that never had one. One that ends later than `longest` was made before
        the clock was set back, and counts as ended.
        """

    def times(self) -> dict[str, int]:
        """The values of `lapsed`."""
        now = int(self._clock.now() * 1000)
        return {"now": now, "longest": now + LONGEST_LEASE}

    async def come(self, any_there: str, wait: float, pause: float) -> bool:
        """Look for up to `wait` seconds whether this query finds something: after this process has written, and for
        what other processes write, every `QUIET` seconds, or every `pause` soon after something was found. There is a
        `pause` between two looks at least, so that what comes in quick succession is found together.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            await asyncio.sleep(min(self._looked + pause, until) - loop.time())
            seen, self._looked = self._database.commits, loop.time()
            with self._database.reading() as db:
                if db.execute(any_there, self.times()).fetchone()[0]:
                    self._found = self._looked
                    return True
            if wait:
                await self._database.after_commit(seen, pause if self._looked - self._found < ALERT else QUIET)
            if loop.time() >= until:
                return False

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        await self.set_until(tokens, self.times()["now"] + int(seconds * 1000))

    async def set_until(self, tokens: Sequence[str], until: int) -> None:
        rows = [(until, *_row_of(token)) for token in tokens]
        query = f"UPDATE {self._table} SET until = ? WHERE seq = ? AND attempt = ? AND until > 0"  # noqa: S608 (a constant)
        await self._database.write(lambda db: db.executemany(query, rows).rowcount)

    def end(self, db: sqlite3.Connection, token: str) -> int | None:
        """Delete the row. Returns its number, or None, and nothing happens, if the lease was lost."""
        row = _row_of(token)
        query = f"DELETE FROM {self._table} WHERE seq = ? AND attempt = ? AND until > 0"  # noqa: S608 (a constant)
        return row[0] if db.execute(query, row).rowcount else None


def _row_of(token: str) -> tuple[int, int]:
    seq, _, attempt = token.partition(".")
    return int(seq), int(attempt)


class SqliteSubscription:
    """Leases messages for `lease` seconds."""

    def __init__(self, database: Database, clock: Clock, lease: float) -> None:
        self._database = database
        self._lease = int(lease * 1000)
        self._leases = Leases(database, clock, "leases")
        self._any = f"SELECT EXISTS {self._leases.lapsed} OR EXISTS (SELECT 1 FROM messages, broker WHERE seq > head)"  # noqa: S608 (constant)
        self._again = (
            f"SELECT {_COLUMNS}, attempt + 1 FROM {self._leases.lapsed} l JOIN messages m ON m.seq = l.seq"  # noqa: S608 (constant)
            " ORDER BY until, l.seq LIMIT :limit"
        )

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        if not await self._leases.come(self._any, wait, POLL):
            return ()
        times = self._leases.times()

        def work(db: sqlite3.Connection) -> list[Delivery]:
            deliveries, fitted = _fitting(db.execute(self._again, {**times, "limit": limit}), max_bytes)
            if len(deliveries) < limit and fitted:
                size = sum(len(d.message.data) for d in deliveries)
                new = db.execute(_NEW, (limit - len(deliveries),))
                more, _ = _fitting(new, max_bytes - size, first=not deliveries)
                if more:
                    db.execute("UPDATE broker SET head = ?", (int(more[-1].message_id),))
                deliveries += more
            until = times["now"] + self._lease
            db.executemany(_LEASE, [(int(d.message_id), until, d.attempt) for d in deliveries])
            return deliveries

        return await self._database.write(work)

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        await self._leases.extend(tokens, seconds)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._leases.set_until(tokens, 0)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        def work(db: sqlite3.Connection) -> None:
            if done := [seq for token in tokens if (seq := self._leases.end(db, token)) is not None]:
                _forget(db, done, floor)

        await self._database.write(work)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Mark the row as buried. It stays, so that readers still count it, and is not delivered any more.

        An unreadable message has no receipt that counts it as dead, so it is counted here.
        """
        unread = not increments_of(delivery.message)

        def mark(db: sqlite3.Connection) -> int:
            if (seq := self._leases.end(db, delivery.token)) is not None:
                data, attributes, increments = db.execute(_BURY, (reason, seq)).fetchone()
                _took_off(db, weight_of(data, attributes), increments)
                if unread:
                    db.execute("UPDATE store SET dead = dead + ?", (increments,))
                    return int(increments)
            return 0

        metrics.DEAD_INCREMENTS.inc(await self._database.write(mark))


def delivery_of(
    seq: int, data: bytes, attributes: str, published: BrokerMillis, *, token: str = "", attempt: int = 1
) -> Delivery:
    """The message in a row."""
    return Delivery(token, Message(data, orjson.loads(attributes)), str(seq), published, attempt)


def _fitting(rows: sqlite3.Cursor, max_bytes: int, *, first: bool = True) -> tuple[list[Delivery], bool]:
    """As many as fit into `max_bytes`, but at least one if it would be the `first`; and whether all of them fitted."""
    deliveries: list[Delivery] = []
    for seq, data, attributes, published, attempt in rows:
        delivery = delivery_of(seq, data, attributes, published, token=f"{seq}.{attempt}", attempt=attempt)
        max_bytes -= len(data)
        if max_bytes < 0 and (deliveries or not first):
            return deliveries, False
        deliveries.append(delivery)
    return deliveries, True


# The dead letters in a SQLite file: messages that are marked as buried.


_THERE: Final = "SELECT seq FROM messages WHERE buried IS NOT NULL AND seq IN (SELECT value FROM json_each(?))"
_NEXT: Final = (
    "SELECT seq, data, attributes, published, buried FROM messages"
    " WHERE buried IS NOT NULL AND seq > ? ORDER BY seq LIMIT ?"
)


class SqliteDeadLetters:
    """One pass through the dead letters. They have no leases; a token is the number of the message."""

    complete = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last = 0

    async def pull(self, limit: int, max_bytes: int) -> Sequence[Letter]:
        with self._database.reading() as db:
            rows, _ = next(batches(db.execute(_NEXT, (self._last, limit)), lambda row: len(row[1]), max_bytes), ([], 0))
        self._last = rows[-1][0] if rows else self._last
        return [
            Letter(delivery_of(seq, data, attributes, published, token=str(seq)), reason)
            for seq, data, attributes, published, reason in rows
        ]

    def continue_after(self, token: str) -> None:
        self._last = int(token)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        """Delete the letters and their overlay entries in one transaction, like the ack of a pending message."""
        wanted = json_of(map(int, tokens))

        def work(db: sqlite3.Connection) -> None:
            if done := [seq for (seq,) in db.execute(_THERE, (wanted,))]:
                _forget(db, done, floor)

        await self._database.write(work)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        row = (reason, int(delivery.token))
        await self._database.write(
            lambda db: db.execute("UPDATE messages SET buried = ? WHERE seq = ? AND buried IS NOT NULL", row).rowcount
        )

    async def close(self) -> None:
        """Do nothing, since nothing is leased."""


# The overlay: the rows of pending messages, followed in memory.


READ_AT_ONCE: Final = 32_768
"""Bytes of messages to read before other tasks get a turn."""
FORGET_AT_ONCE: Final = 5_000
"""Entries to forget before other tasks get a turn."""
EACH: Final = 128
"""The weight of a message besides its data."""


class SqliteOverlay:
    """Sees what all processes on the file accepted. If the file is unchanged, a look takes a few microseconds.

    There is nothing to write: a publish adds the entries, an ack settles them, and a commit raises the floors.
    """

    shared: Final = True
    crowded: Final = False
    kept_by_broker: Final = True

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
            return (await self._sorted()).names(prefix, after, limit, exact=exact)

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        async with self._listing:
            return (await self._sorted()).under(prefixes)

    async def _sorted(self) -> Pending:
        """What is pending, with sorted names. Only one may wait for it."""
        pending = await self._current()
        for _ in pending.sort_names():
            await asyncio.sleep(0)
        return pending

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        return (await self._current()).holds(keys)

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def check(self) -> None:
        """Do nothing: the broker's own check is enough."""

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        """Do nothing: the ack settles them."""

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:  # noqa: ARG002
        """Do nothing: the commit itself raises the floors."""
        return None

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Do nothing: the commit did it, so nobody sees the one without the other."""

    async def unsettled(self, limit: int) -> Mapping[str, str]:  # noqa: ARG002
        return {}

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
                if size > READ_AT_ONCE:
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
                    if gone > FORGET_AT_ONCE:
                        gone = 0
                        await asyncio.sleep(0)
                self._last_ack = number
        self._last_ack = last

    def _add(self, seq: int, data: bytes, attributes: str, published: BrokerMillis) -> None:
        self._last_message = seq
        try:
            self._pending.add(seq, *decode(delivery_of(seq, data, attributes, published), self._topic))
        except UnreadableError:
            return  # the flusher buries it
        except NewerError:
            self._pending.add_unknown(seq)
