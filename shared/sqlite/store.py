"""The store in a SQLite file: commits, snapshots, guards and import marks as tables; a commit is one transaction."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from shared.model import dead_receipt_bodies
from shared.model.buckets import Counts, Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.errors import AlreadyAppliedError, ChangedError, GoneError, LateError, RefusedError
from shared.model.exact_reads import ids_of
from shared.model.imports import Mark
from shared.model.ranges import last_name
from shared.model.receipts import Promise
from shared.model.words import Commit, Guard, Receipt, Receipts, Total
from shared.runtime.clock import Clock
from shared.sqlite import buckets, ids, receipts, shards
from shared.sqlite.audit_data import PAGE, SqliteAuditData, sweep
from shared.sqlite.database import Database, translate
from shared.sqlite.disk import Reserve
from shared.sqlite.overlay import raise_floors
from shared.sqlite.shards import compact, number_of
from shared.sqlite.time import FileTime

# Changes the guards of counters in a SQLite file, and removes counters that were deleted.


_CHANGE: Final = (
    "INSERT INTO guards (counter, version, deleted) SELECT :counter, :time, :deleted"
    " WHERE :seen = coalesce((SELECT version FROM guards WHERE counter = :counter), 0)"
    " ON CONFLICT (counter) DO UPDATE SET version = excluded.version, deleted = excluded.deleted"
)


def change(db: sqlite3.Connection, counter: str, guard: Guard, time: Instant) -> None:
    """Change the guard if it still has the version that was seen. Its new version is `time`, that of the commit."""
    its = {"counter": counter, "seen": guard.version, "deleted": guard.deleted, "time": time}
    if not db.execute(_CHANGE, its).rowcount:
        raise ChangedError(f"{counter} has been set meanwhile")


def remove(db: sqlite3.Connection, counter: str) -> bool:
    """See `Cleanup.remove`. The guard stays, with another version, so that a set that has read what goes restarts."""
    counts = db.execute("SELECT count FROM shards WHERE counter = ?", (counter,)).fetchall()
    if sum(count for (count,) in counts):
        return False
    if not db.execute("SELECT 1 FROM guards WHERE counter = ? AND deleted", (counter,)).fetchone():
        return False
    (time,) = db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()
    db.execute("UPDATE guards SET deleted = 0, version = ? WHERE counter = ?", (time, counter))
    db.execute("DELETE FROM shards WHERE counter = ?", (counter,))
    db.execute("DELETE FROM configs WHERE counter = ?", (counter,))
    return True


# Reads totals and receipts of one instant in a SQLite file.


SLICE: Final = 200
"""Counters to read before other tasks get a turn."""
_TOTALS: Final = (
    "SELECT value, coalesce(num_shards, 0), version, deleted, count FROM json_each(?)"
    " LEFT JOIN configs ON configs.counter = value LEFT JOIN guards ON guards.counter = value"
    " LEFT JOIN shards ON shards.counter = value AND shard < num_shards"
)
"""A row for each shard; one for a counter without any."""
_NO_GUARD: Final = Guard()


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
            totals |= self._totals(names[begin : begin + SLICE])
        ids = [key for total in totals.values() for key in ids_of(total.dead)]
        return totals, await receipts.settled_among(self.db, keys if not ids else {*keys, *ids})

    def _totals(self, counters: Sequence[str]) -> dict[str, Total]:
        names = orjson.dumps(counters).decode()
        dead = receipts.dead_of(self.db, names)
        totals: dict[str, Total] = {}
        for counter, num_shards, version, deleted, count in self.db.execute(_TOTALS, (names,)):
            if counter in totals:  # another shard; sum() in SQL would fail beyond int64
                totals[counter] = totals[counter]._replace(value=totals[counter].value + count)
                continue
            guard = Guard(version, bool(deleted)) if version else _NO_GUARD
            its = dead_receipt_bodies.entries(dead[counter], counter) if counter in dead else ()
            totals[counter] = Total(count or 0, num_shards, guard, *its)
        return totals

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        return await buckets.counts(self.db, counter, by, begin, end)


# The import marks in a SQLite file: how much of other applications' counters has been added here.


FIND: Final = "SELECT counter, total FROM marks WHERE source = ? AND counter IN (SELECT value FROM json_each(?))"
_MOVE: Final = (
    "INSERT INTO marks (source, counter, total) SELECT :source, :counter, :total"
    " WHERE :seen = coalesce((SELECT total FROM marks WHERE source = :source AND counter = :counter), 0)"
    " ON CONFLICT (source, counter) DO UPDATE SET total = excluded.total"
)


def move(db: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    """Write the marks. Raises `ChangedError` if one is not at the total that was seen."""
    for mark in marks:
        if not db.execute(_MOVE, mark._asdict()).rowcount:
            raise ChangedError(f"{mark.counter} has been imported meanwhile")


_COUNT: Final = (
    "UPDATE store SET time = time + 1, applied = applied + ?, deduplicated = deduplicated + ?, dead = dead + ?,"
    " now = ? RETURNING time"
)
_NAMES: Final = "SELECT counter FROM configs WHERE counter >= ? AND counter <= ? ORDER BY counter LIMIT ?"
_DEAD_NAMES: Final = "SELECT DISTINCT counter FROM dead WHERE counter >= ? AND counter <= ? ORDER BY counter LIMIT ?"
_COUNT_PAGE: Final = f"SELECT count(*), max(counter) FROM ({_NAMES})"  # noqa: S608 (a constant)
_PROMISE: Final = (
    "INSERT INTO promises VALUES (?, ?, ?) ON CONFLICT (reach, life) DO UPDATE SET seen = max(seen, excluded.seen)"
)
_OLDEST: Final = "SELECT since FROM messages ORDER BY seq LIMIT 1"
COUNTED: Final = 10_000
"""Names to count before other tasks get a turn."""


class SqliteStore:
    """Its time counts commits, compactions and removals. It has shards so that its data is as in other stores."""

    parallel = False  # a file has one writer

    def __init__(self, database: Database, clock: Clock, reserve: Reserve | None = None) -> None:
        self.database = database
        self._reserve = reserve
        self._clock = clock
        self._time = FileTime(database, clock)
        self._idle = [database.reader()]

    async def now(self) -> StoreMillis:
        return self._time.now()

    async def promises(self) -> Sequence[Promise]:
        return [Promise(*row) for row in self._read("SELECT reach, life, seen FROM promises")]

    async def promise(self, one: Promise) -> None:
        await self.database.write(lambda db: db.execute(_PROMISE, one).rowcount)

    async def apply(self, commit: Commit) -> Instant:
        def work(db: sqlite3.Connection) -> Instant:
            if commit.guard or commit.marks:  # new work; the rest was accepted before
                self._check_room(db)
            now = self._time.inside(db)  # no other process writes until this is done, so it is the commit's time
            if commit.bounds.until is not None and now > commit.bounds.until:
                raise LateError(now)
            if gone := _gone(db, commit.bounds.messages):
                raise GoneError(gone)
            return _apply(db, commit, now, int(self._clock.now() * 1_000))

        return await self.database.write(work)

    async def close_periods(self, until: WallMillis) -> None:
        await self.database.write(lambda db: buckets.close(db, until, int(self._clock.now() * 1_000)))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqliteSnapshot]:
        db = self._idle.pop() if self._idle else self.database.reader()
        try:
            db.execute("BEGIN")
            (time,) = db.execute("SELECT time FROM store").fetchone()
            yield SqliteSnapshot(db, time, self._clock.now(), self._time.now())
        except sqlite3.Error as error:
            raise translate(error, self.database.path) from error
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._idle.append(db)

    @asynccontextmanager
    async def audit_data(self) -> AsyncIterator[SqliteAuditData]:
        async with self.snapshot() as snapshot:
            yield SqliteAuditData(snapshot.db)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        async with self.snapshot() as snapshot:
            return Receipts(snapshot.time, receipts.find(snapshot.db, keys))

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        async with self.snapshot() as snapshot:
            return receipts.dead(snapshot.db, after, limit)

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        with self.database.reading() as db:
            return shards.numbers_of(db, counters)

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return dict(self._read(FIND, source, orjson.dumps(counters).decode()))

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        def work(db: sqlite3.Connection) -> int:
            self._check_room(db)
            if make or number_of(db, counter):
                shards.raise_shards(db, [(counter, num_shards)])
            return number_of(db, counter)

        return await self.database.write(work)

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        def work(db: sqlite3.Connection) -> int:
            self._check_room(db)
            return compact(db, counter, num_shards, receipt)

        return await self.database.write(work)

    async def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        query = "SELECT counter FROM configs WHERE num_shards > ? AND counter > ? ORDER BY counter LIMIT ?"
        after = ""
        while page := self._counters(query, shards, after, PAGE):
            yield page
            after = page[-1]

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:  # noqa: ARG002 (this store keeps none)
        return {}

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        query = "SELECT counter FROM guards WHERE deleted AND counter > ? ORDER BY counter LIMIT ?"
        return self._counters(query, after, limit)

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        query = "SELECT counter FROM guards WHERE deleted AND counter IN (SELECT value FROM json_each(?))"
        return {*self._counters(query, orjson.dumps(counters).decode())}

    async def remove(self, counter: str) -> bool:
        return await self.database.write(lambda db: remove(db, counter))

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return self._counters(_NAMES, _first(prefix, after), last_name(prefix, until), limit)

    async def count(self, prefix: str, most: int) -> int:
        counted, after, end = 0, "", last_name(prefix, None)
        while counted < most:
            page = min(most - counted, COUNTED)
            ((more, after),) = self._read(_COUNT_PAGE, _first(prefix, after), end, page)
            counted += more
            if more < page:
                break
            await asyncio.sleep(0)
        return counted

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        return self._counters(_DEAD_NAMES, _first(prefix, after), last_name(prefix, None), limit)

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            self._time.keep(db)
            return _sweep(db, now, limit)

        return await self.database.write(work)

    def _check_room(self, db: sqlite3.Connection) -> None:
        if self._reserve is not None:
            self._reserve.check(db, 0)

    def _counters(self, query: str, *values: str | int) -> list[str]:
        return [counter for (counter,) in self._read(query, *values)]

    def _read(self, query: str, *values: str | int) -> list[Any]:
        with self.database.reading() as db:
            return db.execute(query, values).fetchall()


def _first(prefix: str, after: str) -> str:
    """The lowest name with this prefix behind `after`. SQLite uses only one lower bound to find its place."""
    return prefix if after < prefix else f"{after}\0"


def _gone(db: sqlite3.Connection, messages: Sequence[str]) -> set[str]:
    """Which of these messages are gone. A message is deleted when it is settled, so it must not be applied again."""
    if not messages:
        return set()
    seqs = orjson.dumps([int(one) for one in messages]).decode()
    there = db.execute("SELECT seq FROM messages WHERE seq IN (SELECT value FROM json_each(?))", (seqs,))
    return {*messages} - {str(seq) for (seq,) in there}


def _apply(db: sqlite3.Connection, commit: Commit, now: StoreMillis, wall: WallMillis) -> Instant:
    (time,) = db.execute(_COUNT, (*commit.tally[:3], now)).fetchone()
    if commit.repeats():
        raise AlreadyAppliedError("a receipt is there twice in this commit")
    receipts.insert(db, commit.receipts, time)
    receipts.revive(db, commit.revived, time)
    if commit.guard is not None:
        change(db, *commit.guard, time)
    move(db, commit.marks)
    if commit.changes:
        raise_floors(db, commit.changes, Instant(time))
    try:
        shards.add(db, commit.adds)
        if commit.by_time is not None:
            buckets.add(db, commit.by_time, wall)
    except sqlite3.IntegrityError as error:  # our own CHECK, or a rule that somebody added to these tables
        raise RefusedError(f"the sum does not fit into the file: {error}") from error
    return Instant(time)


def _sweep(db: sqlite3.Connection, now: StoreMillis, limit: int) -> int:
    """Messages do not expire in this broker, so the receipts that they may meet must stay: their own, and those of the
    ids in them. No receipt is deleted that lived when the oldest message in the file was accepted.
    """
    oldest = db.execute(_OLDEST).fetchone()
    before = now if oldest is None else min(now, *oldest)
    swept = sweep(db, before, limit)
    swept += ids.sweep(db, before, limit - swept)
    return swept + buckets.sweep(db, now, limit - swept)
