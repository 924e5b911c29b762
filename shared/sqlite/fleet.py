"""The fleet of processes that publish to Pub/Sub and store in one SQLite file."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shared.clock import Clock
from shared.fleet import Fleet, first, read, written
from shared.fleet_ports import Look
from shared.sqlite.database import Database, translate
from shared.sqlite.time import FileTime

_READ: Final = "SELECT data, changed FROM fleet"
_WRITE: Final = "INSERT OR REPLACE INTO fleet VALUES (1, ?, ?)"


class SqliteFleetBook:
    """A row of the file. Its changes count in the store's time."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._reader = database.reader()
        self._time = FileTime(database, clock)

    async def look(self) -> Look:
        try:
            return self._look(self._reader)
        except sqlite3.Error as error:
            raise translate(error, self._database.path) from error

    async def change(self, step: Callable[[Fleet, int], Fleet | None]) -> Look:
        def work(db: sqlite3.Connection) -> Look:
            look = self._look(db)
            before = look.fleet
            if not before.version:
                (used,) = db.execute("SELECT EXISTS (SELECT 1 FROM receipts)").fetchone()
                before = first(look.now, used=bool(used))
            after = step(before, look.now)
            if after is not None:
                (time,) = db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()
                db.execute(_WRITE, (written(replace(after, version=before.version + 1)), time))
            return self._look(db)

        return await self._database.write(work)

    def _look(self, db: sqlite3.Connection) -> Look:
        row = db.execute(_READ).fetchone()
        now = self._time.now()
        return Look(Fleet(), 0, now) if row is None else Look(read(row[0]), row[1], now)
