"""The store in a SQLite file: a commit is one transaction over receipts, guards, marks, shards and counts by time."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import nsmallest
from typing import Final

import orjson

from shared.model.buckets import Instant, StoreMillis, WallMillis
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    GoneError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
)
from shared.model.imports import Mark
from shared.model.receipts import Promise
from shared.model.words import SHARD_FULL, Commit, FirstAdds, Guard, Receipt, Receipts, ShardAdd, View, last_name, moved
from shared.ports.store import Snapshot
from shared.runtime.clock import Clock
from shared.sqlite import buckets, feed, receipts
from shared.sqlite.audit_data import PAGE, SqliteAuditData
from shared.sqlite.broker import raise_floors
from shared.sqlite.database import Database, FileTime, json_of, translate
from shared.sqlite.snapshot import SqliteSnapshot

# Shards: sums are added to them, and a counter gets more of them or fewer.


_ADD_TO_SHARDS: Final = (
    "INSERT INTO shards (counter, shard, count, updated) SELECT key, :shard, value, :wall FROM json_each(:sums)"
    " WHERE true ON CONFLICT (counter, shard) DO UPDATE SET count = count + excluded.count, updated = excluded.updated"
    " WHERE count BETWEEN -:full AND :full"
)
_FULL: Final = (
    "SELECT counter FROM json_each(:sums) CROSS JOIN shards ON counter = key AND shard = :shard"
    " WHERE count NOT BETWEEN -:full AND :full"
)
_SHRUNK: Final = (
    "SELECT counter FROM json_each(:sums) CROSS JOIN configs ON counter = key WHERE num_shards BETWEEN 1 AND :shard"
    " AND NOT EXISTS (SELECT 1 FROM shards WHERE counter = key AND shard = :shard)"
)
_NUMBERS: Final = "SELECT counter, num_shards FROM json_each(?) CROSS JOIN configs ON counter = value"
_MAKE: Final = (
    "INSERT INTO configs (counter, num_shards) SELECT key, :number FROM json_each(:sums) WHERE true"
    " ON CONFLICT (counter) DO UPDATE SET num_shards = :least WHERE num_shards < :least"
)


def _make(db: sqlite3.Connection, sums: str, number: int, least: int) -> None:
    """Each counter has `number` shards from now on, if it is new, or at least `least`."""
    db.execute(_MAKE, {"sums": sums, "number": number, "least": least})


def _add_to_shards(db: sqlite3.Connection, adds: Iterable[ShardAdd], wall: WallMillis) -> None:
    """Add to all of these shards. `wall`: the present. The errors are those of `Commits.apply`.

    Adds that differ only in counter and delta are one statement, since a row costs less there than a statement each.
    """
    full: list[tuple[str, int]] = []
    for (shard, number, known), its in _grouped(adds).items():
        sums = _as_json(its)
        values = {"sums": sums, "shard": shard, "full": SHARD_FULL, "wall": wall}
        if 0 < shard < known and (shrunk := {counter for (counter,) in db.execute(_SHRUNK, values)}):
            raise ShrunkError(shrunk)  # see `was_compacted`
        if db.execute(_ADD_TO_SHARDS, values).rowcount < len(its):
            full += [(counter, shard) for (counter,) in db.execute(_FULL, values)]
        # Not by the number that was known before: the counter may have been compacted since. See `number_for`.
        _make(db, sums, number, shard + 1 if known else number)
    if full:
        raise ShardFullError(full)


def _grouped(adds: Iterable[ShardAdd]) -> Mapping[tuple[int, int, int], Mapping[str, int]]:
    """The sums by counter of each shard, `num_shards` and `known`."""
    if isinstance(adds, FirstAdds):
        return {(0, adds.num_shards, adds.known): adds.sums}
    groups: dict[tuple[int, int, int], dict[str, int]] = {}
    for counter, shard, delta, num_shards, known in adds:
        its = groups.setdefault((shard, num_shards, known), {})
        its[counter] = its.get(counter, 0) + delta
    return groups


def _as_json(sums: Mapping[str, int]) -> str:
    """For `json_each`, which reads an integer beyond int64 as a float. The tables refuse those."""
    try:
        return orjson.dumps(sums).decode()
    except TypeError as error:
        raise OverflowError("beyond 64 bits") from error


def _number_of(db: sqlite3.Connection, counter: str) -> int:
    row = db.execute("SELECT num_shards FROM configs WHERE counter = ?", (counter,)).fetchone()
    return row[0] if row else 0


def _compact(db: sqlite3.Connection, counter: str, num_shards: int, receipt: Receipt) -> int:
    """See `ShardNumbers.compact`. Any number of shards fits into the one transaction."""
    if db.execute("SELECT 1 FROM receipts WHERE key = ?", (receipt.key,)).fetchone():
        raise AlreadyAppliedError("the receipt of this compaction exists")
    if (number := _number_of(db, counter)) <= num_shards:
        return number
    rows = db.execute("SELECT shard, count, updated FROM shards WHERE counter = ?", (counter,)).fetchall()
    counts = {shard: count for shard, count, _ in rows}
    updated = max([when for *_, when in rows], default=0)
    leaving = sum(count for shard, count in counts.items() if shard >= num_shards)
    given = moved(counter, [counts.get(shard, 0) for shard in range(num_shards)], leaving)
    (time,) = db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()
    db.execute("DELETE FROM shards WHERE counter = ? AND shard >= ?", (counter, num_shards))
    for shard, part in enumerate(given):
        if part:  # which may be beyond int64, though what the shard holds then is not
            row = (counter, shard, counts.get(shard, 0) + part, updated)
            db.execute("REPLACE INTO shards (counter, shard, count, updated) VALUES (?, ?, ?, ?)", row)
    db.execute("UPDATE configs SET num_shards = ? WHERE counter = ?", (num_shards, counter))
    receipts.insert(db, [receipt], time)
    return num_shards


# Guards: they change, and counters that were deleted are removed.


_CHANGE: Final = (
    "INSERT INTO guards (counter, version, deleted) SELECT :counter, :time, :deleted"
    " WHERE :seen = coalesce((SELECT version FROM guards WHERE counter = :counter), 0)"
    " ON CONFLICT (counter) DO UPDATE SET version = excluded.version, deleted = excluded.deleted"
)


def _change(db: sqlite3.Connection, counter: str, guard: Guard, time: Instant) -> None:
    """Change the guard if it still has the version that was seen. Its new version is `time`, that of the commit."""
    its = {"counter": counter, "seen": guard.version, "deleted": guard.deleted, "time": time}
    if not db.execute(_CHANGE, its).rowcount:
        raise ChangedError(f"{counter} has been set meanwhile")


def _remove(db: sqlite3.Connection, counter: str) -> bool:
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


# The largest counters.


_UNDER: Final = (
    "counter >= :first AND counter <= :last AND counter NOT IN (SELECT value FROM json_each(:besides))"
    " AND counter NOT IN (SELECT counter FROM dead)"
)
_SEVERAL: Final = f"SELECT DISTINCT counter FROM shards WHERE {_UNDER} AND shard > 0"  # noqa: S608 (a constant)
"""Counters with more than one shard. A file has hardly any, and grouping all shards takes thrice as long.
"""
_LARGEST: Final = (
    f"SELECT counter, count FROM shards WHERE {_UNDER} AND shard = 0"  # noqa: S608 (a constant)
    " AND counter NOT IN (SELECT value FROM json_each(:several))"
    " AND (count OR counter NOT IN (SELECT counter FROM guards WHERE deleted))"
    " ORDER BY count DESC, counter LIMIT :limit"
)
_LARGEST_SUMS: Final = (
    "SELECT counter, sum(count >> 32) + (sum(count & 0xFFFFFFFF) >> 32) AS high,"
    " sum(count & 0xFFFFFFFF) & 0xFFFFFFFF AS low"
    " FROM shards WHERE counter IN (SELECT value FROM json_each(:several))"
    " GROUP BY counter HAVING high OR low OR counter NOT IN (SELECT counter FROM guards WHERE deleted)"
    " ORDER BY high DESC, low DESC, counter LIMIT :limit"
)
"""A total may be beyond int64, where sum() fails: so it is high * 2^32 + low."""
_EMPTY: Final = (
    "SELECT counter FROM configs WHERE counter >= :first AND counter <= :last"
    " AND NOT EXISTS (SELECT 1 FROM shards WHERE shards.counter = configs.counter)"
    " AND counter NOT IN (SELECT counter FROM guards WHERE deleted) ORDER BY counter LIMIT :limit"
)
"""Counters without any shard are 0."""


def _largest(db: sqlite3.Connection, prefix: str, limit: int, besides: str) -> list[str]:
    values = {"first": prefix, "last": last_name(prefix, None), "besides": besides, "limit": limit}
    several = [name for (name,) in db.execute(_SEVERAL, values)]
    values["several"] = json_of(several)
    totals = db.execute(_LARGEST, values).fetchall()
    if several:
        totals += [(name, (high << 32) + low) for name, high, low in db.execute(_LARGEST_SUMS, values)]
        totals = nsmallest(limit, totals, key=lambda one: (-one[1], one[0]))
    others = db.execute(_DEAD_NAMES, (prefix, values["last"], -1)).fetchall()
    if len(totals) < limit or totals[-1][1] <= 0:
        others += db.execute(_EMPTY, values).fetchall()
    return [name for name, *_ in (*totals, *others)]


# Import marks: how much of other applications' counters has been added here.


_MARKS: Final = "SELECT counter, total FROM marks WHERE source = ? AND counter IN (SELECT value FROM json_each(?))"
_MOVE: Final = (
    "INSERT INTO marks (source, counter, total) SELECT :source, :counter, :total"
    " WHERE :seen = coalesce((SELECT total FROM marks WHERE source = :source AND counter = :counter), 0)"
    " ON CONFLICT (source, counter) DO UPDATE SET total = excluded.total"
)


def _move(db: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    """Write the marks. Raises `ChangedError` if one is not at the total that was seen."""
    for mark in marks:
        values = mark._asdict() | {"seen": mark.kept(mark.seen), "total": mark.kept(mark.total)}
        if not db.execute(_MOVE, values).rowcount:
            raise ChangedError(f"{mark.counter} has been imported meanwhile")


_COUNT: Final = (
    "UPDATE store SET time = time + 1, applied = applied + ?, deduplicated = deduplicated + ?, dead = dead + ?,"
    " now = ? RETURNING time"
)
_NAMES: Final = "SELECT counter FROM configs WHERE counter >= ? AND counter <= ? ORDER BY counter LIMIT ?"
_NAMES_WITH: Final = (
    "SELECT counter FROM configs WHERE counter >= ? AND counter <= ? AND instr(counter, ?) ORDER BY counter LIMIT ?"
)
_DEAD_NAMES: Final = "SELECT DISTINCT counter FROM dead WHERE counter >= ? AND counter <= ? ORDER BY counter LIMIT ?"
_COUNT_PAGE: Final = f"SELECT count(*), max(counter) FROM ({_NAMES})"  # noqa: S608 (a constant)
_PROMISE: Final = (
    "INSERT INTO promises VALUES (?, ?, ?) ON CONFLICT (reach, life) DO UPDATE SET seen = max(seen, excluded.seen)"
)
_OLDEST: Final = "SELECT since FROM messages ORDER BY seq LIMIT 1"
SEARCHED: Final = 1_000
"""Names that are searched before others get a turn of the event loop: half a millisecond."""
COUNTED: Final = 10_000
"""Names to count before other tasks get a turn."""


class SqliteStore:
    """Its time counts commits, compactions and removals. It has shards so that its data is as in other stores."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._time = FileTime(database, clock)
        self._idle = [database.reader()]

    async def now(self) -> StoreMillis:
        return self._time.now()

    async def promises(self) -> Sequence[Promise]:
        return [Promise(*row) for row in self.database.read("SELECT reach, life, seen FROM promises")]

    async def promise(self, one: Promise) -> None:
        await self.database.write(lambda db: db.execute(_PROMISE, one).rowcount)

    async def apply(self, commit: Commit) -> Instant:
        def work(db: sqlite3.Connection) -> Instant:
            if commit.guard or commit.marks:  # new work; the rest was accepted before
                self.database.reserve.check(db, 0)
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
            yield SqliteAuditData(snapshot)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        async with self.snapshot() as snapshot:
            return Receipts(snapshot.time, receipts.find(snapshot.db, keys))

    async def receipts_from(self, prefix: str, after: str, limit: int) -> Sequence[Receipt]:
        async with self.snapshot() as snapshot:
            return receipts.starting(snapshot.db, _first(prefix, after), last_name(prefix, None), limit)

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        async with self.snapshot() as snapshot:
            return receipts.dead(snapshot.db, after, limit)

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        return dict(self.database.read(_NUMBERS, json_of(counters)))

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return {name: int(total) for name, total in self.database.read(_MARKS, source, json_of(counters))}

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        def work(db: sqlite3.Connection) -> int:
            self.database.reserve.check(db, 0)
            if make or _number_of(db, counter):
                _make(db, _as_json({counter: 0}), num_shards, num_shards)
            return _number_of(db, counter)

        return await self.database.write(work)

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        def work(db: sqlite3.Connection) -> int:
            self.database.reserve.check(db, 0)
            return _compact(db, counter, num_shards, receipt)

        return await self.database.write(work)

    async def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        query = "SELECT counter FROM configs WHERE num_shards > ? AND counter > ? ORDER BY counter LIMIT ?"
        after = ""
        while page := self._counters(query, shards, after, PAGE):
            yield page
            after = page[-1]

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:  # noqa: ARG002 (this store keeps none)
        return {}

    async def largest(
        self, snapshot: Snapshot, prefixes: Sequence[str], limit: int, pending: Mapping[str, View]
    ) -> Sequence[str]:
        """It has all counters with something pending."""
        assert isinstance(snapshot, SqliteSnapshot), "it is one of its own"  # noqa: S101
        db, names = snapshot.db, json_of([*pending])
        work = asyncio.ensure_future(
            asyncio.to_thread(lambda: [name for prefix in prefixes for name in _largest(db, prefix, limit, names)])
        )
        try:
            return [*pending, *await asyncio.shield(work)]
        except asyncio.CancelledError:
            db.interrupt()  # the snapshot ends only when nothing uses it any more
            await asyncio.wait([work])
            raise

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        query = "SELECT counter FROM guards WHERE deleted AND counter > ? ORDER BY counter LIMIT ?"
        return self._counters(query, after, limit)

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        query = "SELECT counter FROM guards WHERE deleted AND counter IN (SELECT value FROM json_each(?))"
        return {*self._counters(query, json_of(counters))}

    async def remove(self, counter: str) -> bool:
        return await self.database.write(lambda db: _remove(db, counter))

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return self._counters(_NAMES, _first(prefix, after), last_name(prefix, until), limit)

    async def names_with(self, part: str, prefix: str, after: str, limit: int) -> Sequence[str]:
        found: list[str] = []
        end, looked = last_name(prefix, None), SEARCHED
        while looked == SEARCHED and len(found) < limit:
            first = _first(prefix, after)
            ((looked, after),) = self.database.read(_COUNT_PAGE, first, end, SEARCHED)
            found += self._counters(_NAMES_WITH, first, after, part, limit - len(found))
            await asyncio.sleep(0)
        return found

    async def count(self, prefix: str, most: int) -> int:
        counted, after, end = 0, "", last_name(prefix, None)
        while counted < most:
            page = min(most - counted, COUNTED)
            ((more, after),) = self.database.read(_COUNT_PAGE, _first(prefix, after), end, page)
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

    def _counters(self, query: str, *values: str | int) -> list[str]:
        return [counter for (counter,) in self.database.read(query, *values)]


def _first(prefix: str, after: str) -> str:
    """The lowest name with this prefix behind `after`. SQLite uses only one lower bound to find its place."""
    return prefix if after < prefix else f"{after}\0"


def _gone(db: sqlite3.Connection, messages: Sequence[str]) -> set[str]:
    """Which of these messages are gone. A message is deleted when it is settled, so it must not be applied again."""
    if not messages:
        return set()
    seqs = json_of(map(int, messages))
    there = db.execute("SELECT seq FROM messages WHERE seq IN (SELECT value FROM json_each(?))", (seqs,))
    return {*messages} - {str(seq) for (seq,) in there}


def _apply(db: sqlite3.Connection, commit: Commit, now: StoreMillis, wall: WallMillis) -> Instant:
    (time,) = db.execute(_COUNT, (*commit.tally[:3], now)).fetchone()
    if commit.repeats():
        raise AlreadyAppliedError("this commit contains a receipt twice")
    receipts.insert(db, commit.receipts, time)
    receipts.revive(db, commit.revived, time)
    if commit.guard is not None:
        _change(db, *commit.guard, time)
    _move(db, commit.marks)
    if commit.changes:
        raise_floors(db, commit.changes, Instant(time))
    try:
        _add_to_shards(db, commit.adds, wall)
        if commit.by_time is not None:
            buckets.add(db, commit.by_time, wall)
        feed.enter(db, commit, Instant(time), now, wall)
    except sqlite3.IntegrityError as error:  # our own CHECK, or a rule that somebody added to these tables
        raise RefusedError(f"the sum does not fit into the file: {error}") from error
    return Instant(time)


def _sweep(db: sqlite3.Connection, now: StoreMillis, limit: int) -> int:
    """Messages do not expire in this broker, so the receipts that they may meet must stay: their own, and those of the
    ids in them. No receipt is deleted that lived when the oldest message in the file was accepted.
    """
    oldest = db.execute(_OLDEST).fetchone()
    before = now if oldest is None else min(now, *oldest)
    swept = receipts.sweep(db, before, limit)
    return swept + buckets.sweep(db, now, limit - swept)
