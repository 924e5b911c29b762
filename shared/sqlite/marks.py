"""The marks in a SQLite file: how much of what other applications hold has been added here."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from shared.model.errors import ChangedError
from shared.model.foreign import Mark

FIND: Final = "SELECT counter, total FROM marks WHERE source = ? AND counter IN (SELECT value FROM json_each(?))"
_MOVE: Final = (
    "INSERT INTO marks (source, counter, total) SELECT :source, :counter, :total"
    " WHERE :seen = coalesce((SELECT total FROM marks WHERE source = :source AND counter = :counter), 0)"
    " ON CONFLICT (source, counter) DO UPDATE SET total = excluded.total"
)


def move(db: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    """From what was seen."""
    for mark in marks:
        if not db.execute(_MOVE, mark._asdict()).rowcount:
            raise ChangedError(f"{mark.counter} has been imported meanwhile")
