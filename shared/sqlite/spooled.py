"""Counts the rows of a spool file: those that wait, that can never be sent, and that an older version gave up."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from shared.model.times import BrokerMillis
from shared.sqlite.database import Database

GIVEN_UP: Final = "the broker refuses it"
"""The reason that Countersink 0.1.0 wrote for a refusal that it took for final. Such a refusal may pass."""
_REVIVED: Final = (
    "UPDATE OR IGNORE messages SET buried = NULL WHERE buried = ?"
    " RETURNING seq, length(data) + length(attributes), increments"
)


class Spooled(NamedTuple):
    """Numbers of rows."""

    waiting: int
    oldest: BrokerMillis | None
    """When the oldest waiting row was spooled."""
    given_up: int
    """The next start of an ingest sends them again."""
    buried: int
    """Too large to be sent: `countersink dlq` shows them."""


def spooled(db: sqlite3.Connection) -> Spooled:
    query = (
        "SELECT count(*) FILTER (WHERE buried IS NULL), min(published) FILTER (WHERE buried IS NULL),"
        " count(*) FILTER (WHERE buried = ?), count(*) FILTER (WHERE buried IS NOT NULL AND buried <> ?)"
        " FROM messages"
    )
    return Spooled(*db.execute(query, (GIVEN_UP, GIVEN_UP)).fetchone())


def spooled_in(path: Path) -> Spooled:
    """The numbers of an existing file, which is not changed."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None)) as db:
        return spooled(db)


def bring_back(database: Database) -> int:
    """Have the rows wait again that an older version gave up for a refusal that may have passed. Returns how many.

    Safe to do twice, and by several processes. A row that was published after all counts once, by its receipt.
    """
    with closing(sqlite3.connect(database.path, isolation_level=None, timeout=10)) as db:
        if not spooled(db).given_up:
            return 0
        db.execute("BEGIN IMMEDIATE")
        rows = db.execute(_REVIVED, (GIVEN_UP,)).fetchall()
        db.executemany(
            "INSERT OR REPLACE INTO leases (seq, until, attempt) VALUES (?, 0, 1)", [row[:1] for row in rows]
        )
        db.execute(
            "UPDATE broker SET bytes = bytes + ?, increments = increments + ?",
            (sum(row[1] for row in rows), sum(row[2] for row in rows)),
        )
        db.execute("COMMIT")
        return len(rows)
