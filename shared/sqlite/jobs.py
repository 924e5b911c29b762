"""Jobs in a SQLite file: the results of their tasks, the room that exports may take, and the tasks that wait."""

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import orjson

from shared.model.buckets import StoreMillis, WallMillis
from shared.model.errors import RefusedError
from shared.model.jobs import (
    BYTES_OF_EXPORTS,
    EXPORT,
    FAILED,
    FORGOTTEN,
    RUNNING,
    Done,
    Job,
    JobState,
    Lease,
    Progress,
    Task,
    bounds_of,
    check_exports,
    check_running,
    noted,
    owner_of,
    recalled,
    share_of,
    sharers_of,
    span_of,
    span_text,
    written,
)
from shared.model.words import batches
from shared.runtime.clock import Clock
from shared.sqlite.broker import Leases
from shared.sqlite.database import READ_TIME, Database, json_of

# Admits exports into a SQLite file within limits, and gives their room back to the disk.


COUNT_AGAIN: Final = 1.0
"""Seconds for which a sum of all chunks is believed. What this process adds meanwhile is added to it."""
MOST_FREED: Final = 2**22
"""Bytes of chunks that one transaction deletes, since others wait for it: a few hundredths of a second."""
_OWNED: Final = "kind = ? AND id >= ? AND id < ?"
_BYTES: Final = f"SELECT coalesce(sum(length(chunk)), 0) FROM jobs JOIN done_tasks ON job = id WHERE {_OWNED}"  # noqa: S608 (a constant)
_KEPT: Final = f"SELECT count(*), coalesce(min(expires), 0) FROM jobs WHERE {_OWNED} AND state != ?"  # noqa: S608 (a constant)


class ExportRoom:
    """Limits how many exports are kept, and how many bytes, in all and of each owner. Use it in the writer's thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes: dict[str, tuple[int, float]] = {}
        """The sum of all chunks of an owner, or of all owners under an empty string, and until when it is believed."""

    def begin(self, db: sqlite3.Connection, job: str) -> None:
        """Raise `ShareError` if no other export may begin."""
        for owner in sharers_of(job):
            number, expires = db.execute(_KEPT, (EXPORT, *bounds_of(owner), FAILED)).fetchone()
            left = (expires - db.execute(READ_TIME).fetchone()[0]) / 1_000
            check_exports(owner, "MAX_EXPORTS", self._most, number, left=left)
            size = self._count(db, owner)
            check_exports(owner, "MAX_EXPORT_BYTES", self._most_bytes, size, left=left, unit=BYTES_OF_EXPORTS)

    def take(self, db: sqlite3.Connection, job: str, size: int) -> None:
        """Count a chunk of this size that was just inserted. Raises `RefusedError` if there is no room for it."""
        for owner in sharers_of(job):
            share = share_of(owner, self._most_bytes)
            held, until = self._bytes.get(owner, (0, 0.0))
            self._bytes[owner] = held + size, until
            if (time.monotonic() >= until or held + size > share) and self._count(db, owner) > share:
                self._bytes.clear()  # it is taken out again
                whose = f"of one owner may take {share}" if owner else f"may take {share}"
                raise RefusedError(
                    f"exports {whose} bytes in all (COUNTERSINK_MAX_EXPORT_BYTES), and the others leave"
                    " too little for this one: delete exports that you have read, or export a longer prefix"
                )

    def _count(self, db: sqlite3.Connection, owner: str) -> int:
        (size,) = db.execute(_BYTES, (EXPORT, *bounds_of(owner))).fetchone()
        self._bytes[owner] = size, time.monotonic() + COUNT_AGAIN
        return int(size)


def delete_results(db: sqlite3.Connection, which: str, values: Sequence[object], limit: int) -> int:
    """Delete some results of tasks, and give their room back to the disk. Returns how many were deleted.

    `which`: selects rows of `done_tasks`, each with its number and the length of its chunk.
    """
    found = db.execute(f"{which} LIMIT ?", (*values, limit))
    rows, _ = next(batches(found, itemgetter(1), MOST_FREED), ([], 0))
    found.close()
    (before,) = db.execute("PRAGMA freelist_count").fetchone()
    db.executemany("DELETE FROM done_tasks WHERE rowid = ?", [(row,) for row, _ in rows])
    (after,) = db.execute("PRAGMA freelist_count").fetchone()
    for _ in range(after - before):
        db.execute("PRAGMA incremental_vacuum(1)")  # a page: Python takes only the first step of this statement
    return len(rows)


COLUMNS: Final = (
    "id, kind, prefix, delta, created, expires, open, tasks, visited, changed, failed, depth, share, examples, state,"
    " finished, why, span"
)
KEEP: Final = f"INSERT OR IGNORE INTO jobs ({COLUMNS}) VALUES ({', '.join('?' * 18)})"  # noqa: S608 (a constant)
_RUNNING: Final = "SELECT count(*) FROM jobs WHERE state = ? AND id >= ? AND id < ?"
_LATEST: Final = f"SELECT {COLUMNS} FROM jobs WHERE id >= ? AND id < ? AND (instr(id, '/') > 0) = ? ORDER BY created DESC, id LIMIT ?"  # noqa: S608, E501 (constant)
_GROW: Final = (
    "UPDATE jobs SET open = open + ?, tasks = ?, visited = ?, changed = ?, failed = ?, depth = ?, share = ?,"
    " examples = ? WHERE id = ?"
)
_RESULTS: Final = "SELECT rowid, length(chunk) FROM done_tasks WHERE job = ?"
_RESULTS_OF_FAILED: Final = (
    "SELECT done_tasks.rowid, length(chunk) FROM jobs JOIN done_tasks ON job = id WHERE kind = ? AND state = ?"
)
_CHUNKS: Final = "SELECT begin, chunk FROM done_tasks WHERE job = ? AND begin {} ? ORDER BY begin LIMIT ?"


class SqliteJobs:
    """Keeps one row for each job, and one for each of its tasks that is done."""

    def __init__(self, database: Database, room: ExportRoom | None = None) -> None:
        self._database = database
        self._room = room

    async def create(self, job: Job) -> tuple[JobState, bool]:
        def work(db: sqlite3.Connection) -> tuple[JobState, bool]:
            there = _find(db, job.id)
            if there is not None:
                return there, False
            self._database.reserve.check(db, 0, large=job.kind == EXPORT)
            if owner := owner_of(job.id):
                check_running(owner, *db.execute(_RUNNING, (RUNNING, *bounds_of(owner))).fetchone())
            if self._room is not None and job.kind == EXPORT:
                self._room.begin(db, job.id)
            new = JobState(job, open=1)
            db.execute(KEEP, row_of(new))
            return new, True

        return await self._database.write(work)

    async def get(self, job: str) -> JobState | None:
        with self._database.reading() as db:
            return _find(db, job)

    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        return [*map(state_of, self._database.read(_LATEST, *bounds_of(owner), bool(owner), limit))]

    async def record(self, done: Done) -> Done | None:
        task = done.task
        row = (task.job, task.range.after, noted(done), done.chunk)

        def work(db: sqlite3.Connection) -> Done | None:
            standing = _find(db, task.job)
            if standing is None or (done.chunk and standing.state == FAILED):  # then its results are being deleted
                return None
            if not db.execute("INSERT OR IGNORE INTO done_tasks VALUES (?, ?, ?, ?)", row).rowcount:
                return _recorded(db, task.job, [task.range.after])[task.range.after]
            # A job writes more the more counters there are, and it can wait.
            self._database.reserve.check(db, 0, large=bool(done.chunk))
            if self._room is not None and done.chunk:
                self._room.take(db, task.job, len(done.chunk))
            *numbers, examples = standing.progress.plus(done.progress)
            db.execute(_GROW, (done.opens, *numbers, orjson.dumps(examples).decode(), task.job))
            return done

        return await self._database.write(work)

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        with self._database.reading() as db:
            return _recorded(db, job, begins)

    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE jobs SET state = ?, finished = ?, why = ? WHERE id = ? AND state = ?",
                (state, when, why, job, RUNNING),
            )

        await self._database.write(work)

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        return self._database.read(_CHUNKS.format(">" if after else ">="), job, after, limit)

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            db.execute(
                "UPDATE jobs SET state = ?, finished = ?, why = ? WHERE id = ? AND state != ?",
                (FAILED, when, why, job, FAILED),
            )
            return delete_results(db, _RESULTS, (job,), limit)

        return await self._database.write(work)

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        """Also deletes the results of exports that failed, since nobody can read them."""

        def work(db: sqlite3.Connection) -> int:
            gone = 0
            for (job,) in db.execute("SELECT id FROM jobs WHERE expires < ? LIMIT ?", (now, limit)).fetchall():
                db.execute("UPDATE jobs SET state = ?, why = ? WHERE id = ?", (FAILED, FORGOTTEN, job))
                gone += delete_results(db, _RESULTS, (job,), limit - gone)
                if gone >= limit or db.execute(f"{_RESULTS} LIMIT 1", (job,)).fetchone():
                    return gone
                gone += db.execute("DELETE FROM jobs WHERE id = ?", (job,)).rowcount
            return gone + delete_results(db, _RESULTS_OF_FAILED, (EXPORT, FAILED), limit - gone)

        return await self._database.write(work)


def _find(db: sqlite3.Connection, job: str) -> JobState | None:
    row: Sequence[Any] | None = db.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (job,)).fetchone()  # noqa: S608 (constant)
    return None if row is None else state_of(row)


def row_of(state: JobState) -> Sequence[Any]:
    *numbers, examples = state.progress
    job, text = state.job, orjson.dumps(examples).decode()
    return (*job[:6], state.open, *numbers, text, state.state, state.finished, state.why, span_text(job.span))


def state_of(row: Sequence[Any]) -> JobState:
    progress = Progress._make((*row[7:13], tuple(map(tuple, orjson.loads(row[13])))))
    return JobState(Job(*row[:6])._replace(span=span_of(row[17])), row[6], progress, *row[14:17])


def _recorded(db: sqlite3.Connection, job: str, begins: Collection[str]) -> dict[str, Done]:
    rows = db.execute(
        "SELECT begin, note, chunk FROM done_tasks WHERE job = ? AND begin IN (SELECT value FROM json_each(?))",
        (job, json_of(begins)),
    )
    return {begin: recalled(note, chunk) for begin, note, chunk in rows}


# The tasks that wait, with leases like those of the broker's messages.


POLL: Final = 0.05
"""Seconds between two looks for tasks. A look takes a few microseconds."""
_LEASE_TASKS: Final = """
    UPDATE tasks SET until = :now + :lease, attempt = attempt + 1
    WHERE seq IN (SELECT seq FROM tasks WHERE until <= :now OR until > :longest ORDER BY seq LIMIT :limit)
    RETURNING seq, attempt, data
"""


class SqliteTasks:
    """Hands out tasks in the order in which they came, so that one job does not hold up another. A task that is given
    back goes to the end.

    A task that is published twice costs only a look, since its record says that it is done.
    """

    def __init__(self, database: Database, clock: Clock, lease: float) -> None:
        self._database = database
        self._lease = lease
        self._leases = Leases(database, clock, "tasks")
        self._any = f"SELECT EXISTS {self._leases.lapsed}"

    async def publish(self, tasks: Sequence[Task]) -> None:
        rows = [(written(task),) for task in tasks]
        if rows:
            await self._database.write(lambda db: db.executemany("INSERT INTO tasks (data) VALUES (?)", rows).rowcount)

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not await self._leases.come(self._any, wait, POLL):
            return ()
        values = {**self._leases.times(), "limit": limit, "lease": int(self._lease * 1000)}

        def work(db: sqlite3.Connection) -> list[Lease]:
            return [Lease(f"{seq}.{attempt}", data) for seq, attempt, data in db.execute(_LEASE_TASKS, values)]

        return await self._database.write(work)

    async def extend(self, tokens: Sequence[str]) -> None:
        await self._leases.extend(tokens, self._lease)

    async def give_back(self, tokens: Sequence[str]) -> None:
        def work(db: sqlite3.Connection) -> None:
            for token in tokens:
                row = db.execute("SELECT data FROM tasks WHERE seq = ?", token.split(".")[:1]).fetchone()
                if self._leases.end(db, token) is not None:
                    db.execute("INSERT INTO tasks (data) VALUES (?)", row)

        await self._database.write(work)

    async def ack(self, tokens: Sequence[str]) -> None:
        def work(db: sqlite3.Connection) -> None:
            for token in tokens:
                self._leases.end(db, token)

        await self._database.write(work)
