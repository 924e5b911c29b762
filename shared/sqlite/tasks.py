"""The tasks of jobs that wait in a SQLite file, with leases like those of the broker's messages."""

import logging
import sqlite3
from collections.abc import Sequence
from typing import Final

from shared.model import jobs
from shared.model.errors import NewerError, UnreadableError
from shared.model.jobs import Task
from shared.ports.jobs import Lease
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.sqlite.broker import LONGEST_LEASE, comes, lease_of
from shared.sqlite.database import Database

_log = logging.getLogger(__name__)

POLL: Final = 0.05
"""Seconds between two looks for tasks. A look takes a few microseconds."""
_FREE: Final = "SELECT EXISTS (SELECT 1 FROM tasks WHERE until <= :now OR until > :now + :longest)"
_LEASE: Final = """
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
        if not await comes(self._any, wait, min(POLL, wait)):
            return ()
        values = {**self._times(), "limit": limit, "lease": self._lease}

        def work(db: sqlite3.Connection) -> list[Lease]:
            leases = []
            for seq, attempt, data in db.execute(_LEASE, values).fetchall():
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
