"""The import marks in a SQLite file: how much of other applications' counters has been added here."""

import sqlite3
from collections.abc import Iterable
from typing import Final

from shared.model.errors import ChangedError
from shared.model.import_source import Mark

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
