"""Changes the guards of counters in a SQLite file, and removes counters that were deleted."""

import sqlite3
from typing import Final

from shared.model.errors import ChangedError
from shared.model.times import Instant
from shared.model.words import Guard

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
