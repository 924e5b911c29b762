"""The broker in a SQLite file: messages with leases and redelivery like those of Pub/Sub, dead letters, and tasks
of jobs.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

import orjson

from shared.model import jobs
from shared.model.buckets import BrokerMillis, Instant
from shared.model.errors import NewerError, OverloadedError, SettingsError, UnreadableError
from shared.model.jobs import Task
from shared.model.words import Delivery, Letter, Message
from shared.ports.broker import Check, at_any_time
from shared.ports.store import Lease
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.drain_rate import Drain
from shared.sqlite.database import Database, FileTime, Reserve, connect_to
from shared.sqlite.overlay import forget, took_off, weight_of
from shared.wire.codec import increments_of

POLL: Final = 0.01
"""Seconds between two looks for messages of other processes. A look takes a few microseconds."""
SMALL: Final = 500
"""Bytes of a small envelope."""
COMFORT: Final = 0.9
"""The part of the limit that is expected to be pending when a refused client is told to come back."""
LONGEST_LEASE: Final = 600_000
"""Milliseconds: the most that COUNTERSINK_LEASE allows."""
_LAPSED: Final = (
    "(SELECT * FROM leases WHERE until <= :now UNION ALL SELECT * FROM leases WHERE until > :now + :longest)"
)
"""Leases that have ended. One for longer than `longest` was made before the clock was set back, and counts as ended."""
_ANY: Final = f"SELECT EXISTS {_LAPSED} OR EXISTS (SELECT 1 FROM messages, broker WHERE seq > head)"  # noqa: S608 (constant)
_LEASE: Final = (
    "INSERT INTO leases (seq, until, attempt) VALUES (?, ?, ?)"
    " ON CONFLICT (seq) DO UPDATE SET until = excluded.until, attempt = excluded.attempt"
)
_BURY: Final = "UPDATE messages SET buried = ? WHERE seq = ? RETURNING data, attributes, increments"
_INSERT: Final = (
    "INSERT OR IGNORE INTO messages (data, attributes, published, once, increments, since)"
    " VALUES (?, ?, ?, ?, ?, (SELECT now FROM store))"
)


def topic_of(database: Database) -> str:
    """The name of the broker in this file."""
    with database.reading() as db:
        return str(db.execute("SELECT name FROM broker").fetchone()[0])


def claim(database: Database, topic: str) -> None:
    """Reserve the file for that topic, for ever. Raises `SettingsError` if it belongs to another topic."""
    with closing(connect_to(database.path)) as db:
        db.execute("UPDATE broker SET name = ? WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence)", (topic,))
        (name,) = db.execute("SELECT name FROM broker").fetchone()
    if name != topic:
        raise SettingsError(f"{database.path} holds envelopes for {name}, not for {topic}: name another file")


class SqlitePublisher:
    """Publishes to the file. When `publish` returns, its transaction is synced."""

    def __init__(
        self, database: Database, clock: Clock, max_pending_bytes: int, reserve: Reserve | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._time = FileTime(database, clock)
        self._max_pending_bytes = max_pending_bytes
        self._reserve = reserve
        self._drain = Drain(max_pending_bytes / 4)
        self._left = 0
        """Bytes pending after the last look. What other processes publish makes the drain look slower than it is."""

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        now = BrokerMillis(int(self._clock.now() * 1000))
        rows = [(m.data, orjson.dumps(m.attributes).decode(), now, m.once, increments_of(m)) for m in messages]
        size = sum(weight_of(row[0], row[1]) for row in rows)

        def insert(db: sqlite3.Connection) -> int:
            """Insert the messages. Returns how many increments were in those that were dropped as repeated."""
            check()
            self._time.keep(db)
            self._admit(db, size)
            taken = increments = dropped = 0
            for row in rows:
                if db.execute(_INSERT, row).rowcount:
                    taken += weight_of(row[0], row[1])
                    increments += row[4]
                else:
                    dropped += row[4]
            db.execute(
                "UPDATE broker SET bytes = bytes + ?, increments = increments + ?, taken = taken + ?",
                (taken, increments, increments),
            )
            self._left += taken
            return dropped

        metrics.DEDUPLICATED.inc(await self._database.write(insert))

    async def check(self) -> None:
        """Write what a publish would write, and delete it in the same transaction."""

        def touch(db: sqlite3.Connection) -> None:
            self._admit(db, SMALL)
            db.execute("UPDATE broker SET bytes = bytes")
            db.execute(_INSERT, (bytes(SMALL), "{}", 0, None, 0))
            db.execute("DELETE FROM messages WHERE seq = last_insert_rowid()")

        await self._database.write(touch)

    def pending(self) -> tuple[int, int]:
        with self._database.reading() as db:
            (pending,) = db.execute("SELECT bytes FROM broker").fetchone()
        return pending, self._max_pending_bytes

    def weigh(self, message: Message) -> int:
        return weight_of(message.data, orjson.dumps(message.attributes).decode())

    def _admit(self, db: sqlite3.Connection, size: int) -> None:
        """Raise an error if there is no room. Call it in the writer's thread only."""
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
                f"{pending} bytes wait to be applied, COUNTERSINK_MAX_PENDING_BYTES allows"
                f" {self._max_pending_bytes}: is a flusher running?",
                self._drain.seconds(max(pending + size, self._max_pending_bytes) - enough, now),
            )
        if self._reserve is not None:
            self._reserve.check(db, pending + size)


class SqliteSubscription:
    """Leases messages for `lease` seconds. The token of a lease names the message and the attempt."""

    def __init__(self, database: Database, clock: Clock, lease: float) -> None:
        self._database = database
        self._clock = clock
        self._lease = lease

    async def pull(self, limit: int, max_bytes: int, wait: float) -> Sequence[Delivery]:
        if not await comes(self._any, wait, POLL):
            return ()
        now = self._now()
        lease = int(self._lease * 1000)

        def work(db: sqlite3.Connection) -> list[Delivery]:
            deliveries = _next(db, now, limit, max_bytes)
            db.executemany(_LEASE, [(int(d.message_id), now + lease, d.attempt) for d in deliveries])
            return deliveries

        return await self._database.write(work)

    def _any(self) -> bool:
        with self._database.reading() as db:
            (found,) = db.execute(_ANY, {"now": self._now(), "longest": LONGEST_LEASE}).fetchone()
        return bool(found)

    async def extend(self, tokens: Sequence[str], seconds: float) -> None:
        until = self._now() + int(seconds * 1000)
        await self._set_until(tokens, until)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._set_until(tokens, 0)

    async def _set_until(self, tokens: Sequence[str], until: int) -> None:
        rows = [(until, *lease_of(token)) for token in tokens]

        def update(db: sqlite3.Connection) -> None:
            db.executemany("UPDATE leases SET until = ? WHERE seq = ? AND attempt = ? AND until > 0", rows)

        await self._database.write(update)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        leases = [lease_of(token) for token in tokens]

        def work(db: sqlite3.Connection) -> None:
            if done := [lease[0] for lease in leases if _end_lease(db, lease)]:
                forget(db, done, floor)

        await self._database.write(work)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Mark the row as buried. It stays, so that readers still count it, and is not delivered any more.

        An unreadable message has no receipt that counts it as dead, so it is counted here.
        """
        lease = lease_of(delivery.token)
        unread = not increments_of(delivery.message)

        def mark(db: sqlite3.Connection) -> int:
            if _end_lease(db, lease):
                data, attributes, increments = db.execute(_BURY, (reason, lease[0])).fetchone()
                took_off(db, weight_of(data, attributes), increments)
                if unread:
                    db.execute("UPDATE store SET dead = dead + ?", (increments,))
                    return int(increments)
            return 0

        metrics.DEAD_INCREMENTS.inc(await self._database.write(mark))

    def _now(self) -> BrokerMillis:
        return BrokerMillis(int(self._clock.now() * 1000))


async def comes(there: Callable[[], bool], wait: float, pause: float) -> bool:
    """Look for up to `wait` seconds whether something is there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    while not there():
        if loop.time() >= until:
            return False
        await asyncio.sleep(pause)
    return True


def _next(db: sqlite3.Connection, now: BrokerMillis, limit: int, max_bytes: int) -> list[Delivery]:
    """The messages to lease now: those whose leases have ended, then new ones."""
    columns = "m.seq, data, attributes, published"
    again = db.execute(
        f"SELECT {columns}, attempt + 1 FROM {_LAPSED} l JOIN messages m ON m.seq = l.seq"  # noqa: S608 (constant)
        " ORDER BY until, l.seq LIMIT :limit",
        {"now": now, "longest": LONGEST_LEASE, "limit": limit},
    )
    deliveries, fitted = _fitting(again, max_bytes)
    if len(deliveries) < limit and fitted:
        size = sum(len(d.message.data) for d in deliveries)
        new = db.execute(
            f"SELECT {columns}, 1 FROM messages m, broker WHERE m.seq > head ORDER BY m.seq LIMIT ?",  # noqa: S608 (constant)
            (limit - len(deliveries),),
        )
        more, _ = _fitting(new, max_bytes - size, first=not deliveries)
        if more:
            db.execute("UPDATE broker SET head = ?", (int(more[-1].message_id),))
        deliveries += more
    return deliveries


def _fitting(rows: sqlite3.Cursor, max_bytes: int, *, first: bool = True) -> tuple[list[Delivery], bool]:
    """As many as fit into `max_bytes`, but at least one if it would be the `first`; and whether all of them fitted."""
    deliveries: list[Delivery] = []
    for seq, data, attributes, published, attempt in rows:
        delivery = Delivery(
            token=f"{seq}.{attempt}",
            message=Message(data, orjson.loads(attributes)),
            message_id=str(seq),
            published=published,
            attempt=attempt,
        )
        max_bytes -= len(data)
        if max_bytes < 0 and (deliveries or not first):
            return deliveries, False
        deliveries.append(delivery)
    return deliveries, True


def _end_lease(db: sqlite3.Connection, lease: tuple[int, int]) -> bool:
    return db.execute("DELETE FROM leases WHERE seq = ? AND attempt = ? AND until > 0", lease).rowcount > 0


def lease_of(token: str) -> tuple[int, int]:
    """The row's number and the attempt that a token names."""
    seq, _, attempt = token.partition(".")
    return int(seq), int(attempt)


# The tasks of jobs that wait in a SQLite file, with leases like those of the broker's messages.


_log = logging.getLogger(__name__)

POLL_FOR_TASKS: Final = 0.05
"""Seconds between two looks for tasks. A look takes a few microseconds."""
_FREE: Final = "SELECT EXISTS (SELECT 1 FROM tasks WHERE until <= :now OR until > :now + :longest)"
_LEASE_TASK: Final = """
    UPDATE tasks SET until = :now + :lease, attempt = attempt + 1
    WHERE seq IN (
        SELECT seq FROM tasks WHERE until <= :now OR until > :now + :longest ORDER BY seq LIMIT :limit
    ) RETURNING seq, attempt, data
"""


class SqliteTasks:
    """Hands out tasks in the order in which they came, so that one job does not hold up another. A task that is given
    back goes to the end. A token names the task and the lease.

    A task that is published twice costs only a look, since its record says that it is done.
    """

    def __init__(self, database: Database, clock: Clock, lease: float) -> None:
        self._database = database
        self._clock = clock
        self._lease = int(lease * 1000)

    async def publish(self, tasks: Sequence[Task]) -> None:
        rows = [(jobs.written(task),) for task in tasks]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT INTO tasks (data) VALUES (?)", rows)

        if rows:
            await self._database.write(work)

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not await comes(self._any, wait, min(POLL_FOR_TASKS, wait)):
            return ()
        values = {**self._times(), "limit": limit, "lease": self._lease}

        def work(db: sqlite3.Connection) -> list[Lease]:
            leases = []
            for seq, attempt, data in db.execute(_LEASE_TASK, values).fetchall():
                try:
                    leases.append(Lease(f"{seq}.{attempt}", jobs.read(data)))
                except NewerError as error:  # when the lease ends, it is handed out again
                    metrics.NEWER.inc()
                    _log.warning("task %d is left to newer flushers: %s", seq, error)
                except UnreadableError as error:  # otherwise it would end each process that takes it
                    _log.error("task %d is dropped: %s", seq, error)
                    db.execute("DELETE FROM tasks WHERE seq = ?", (seq,))
            return leases

        return await self._database.write(work)

    def _any(self) -> bool:
        with self._database.reading() as db:
            return bool(db.execute(_FREE, self._times()).fetchone()[0])

    async def extend(self, tokens: Sequence[str]) -> None:
        rows = [(self._now() + self._lease, *lease_of(token)) for token in tokens]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("UPDATE tasks SET until = ? WHERE seq = ? AND attempt = ?", rows)

        await self._database.write(work)

    async def give_back(self, tokens: Sequence[str]) -> None:
        rows = [lease_of(token) for token in tokens]

        def work(db: sqlite3.Connection) -> None:
            for row in rows:
                db.execute("INSERT INTO tasks (data) SELECT data FROM tasks WHERE seq = ? AND attempt = ?", row)
                db.execute("DELETE FROM tasks WHERE seq = ? AND attempt = ?", row)

        await self._database.write(work)

    async def ack(self, tokens: Sequence[str]) -> None:
        rows = [lease_of(token) for token in tokens]

        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM tasks WHERE seq = ? AND attempt = ?", rows)

        await self._database.write(work)

    def _times(self) -> dict[str, int]:
        return {"now": self._now(), "longest": LONGEST_LEASE}

    def _now(self) -> int:
        return int(self._clock.now() * 1000)


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
        letters: list[Letter] = []
        with self._database.reading() as db:
            for seq, data, attributes, published, reason in db.execute(_NEXT, (self._last, limit)):
                max_bytes -= len(data)
                if max_bytes < 0 and letters:
                    break
                self._last = seq
                message = Message(data, orjson.loads(attributes))
                letters.append(Letter(Delivery(str(seq), message, str(seq), published), reason))
        return letters

    def continue_after(self, token: str) -> None:
        self._last = int(token)

    async def ack(self, tokens: Sequence[str], floor: Instant) -> None:
        """Delete the letters and their overlay entries in one transaction, like the ack of a pending message."""
        wanted = orjson.dumps([int(token) for token in tokens]).decode()

        def work(db: sqlite3.Connection) -> None:
            if done := [seq for (seq,) in db.execute(_THERE, (wanted,))]:
                forget(db, done, floor)

        await self._database.write(work)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        row = (reason, int(delivery.token))
        await self._database.write(
            lambda db: db.execute("UPDATE messages SET buried = ? WHERE seq = ? AND buried IS NOT NULL", row).rowcount
        )

    async def close(self) -> None:
        """Do nothing, since nothing is leased."""
