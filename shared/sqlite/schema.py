"""Makes the tables of a file, and refuses files that have others."""

import sqlite3
from pathlib import Path
from typing import Final

from shared.model.errors import SettingsError

APPLICATION_ID: Final = 0x434F554E
"""'COUN', in the file's header: tells our files from others."""

VERSION: Final = 14
"""The version of the tables. Builds before the first release made files of earlier versions, which are refused."""
_TABLES: Final = """
    -- `since` is the file's time when a message was accepted. No receipt that lived then is swept while the message is
    -- there: it may be the receipt of an id in the message.
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        data BLOB NOT NULL,
        attributes TEXT NOT NULL,
        published INTEGER NOT NULL,
        once TEXT,
        buried TEXT,
        increments INTEGER NOT NULL DEFAULT 0,
        since INTEGER NOT NULL DEFAULT 0
    );
    CREATE UNIQUE INDEX messages_once ON messages (once) WHERE once IS NOT NULL AND buried IS NULL;

    -- Apart from the messages, so that a lease does not write their data again.
    CREATE TABLE leases (seq INTEGER PRIMARY KEY, until INTEGER NOT NULL, attempt INTEGER NOT NULL);
    CREATE INDEX leases_until ON leases (until);

    -- Which messages were deleted, for processes that keep the pending ones in memory.
    CREATE TABLE acks (number INTEGER PRIMARY KEY AUTOINCREMENT, seqs TEXT NOT NULL);

    -- The name belongs to the file, however its path is spelled. It is part of the id of messages without one. A spool
    -- has the name of its topic; the id is the file's own, see `witness`.
    CREATE TABLE broker (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        name TEXT NOT NULL,
        head INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        increments INTEGER NOT NULL DEFAULT 0,
        taken INTEGER NOT NULL DEFAULT 0,
        id TEXT NOT NULL DEFAULT ''
    );
    INSERT INTO broker VALUES (1, lower(hex(randomblob(16))), 0, 0, 0, 0, 0, lower(hex(randomblob(16))));

    CREATE TABLE configs (counter TEXT PRIMARY KEY, num_shards INTEGER NOT NULL) WITHOUT ROWID;
    -- An overflowing sum would become REAL: the check makes it an error.
    CREATE TABLE shards (
        counter TEXT NOT NULL,
        shard INTEGER NOT NULL,
        count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
        PRIMARY KEY (counter, shard)
    ) WITHOUT ROWID;
    CREATE TABLE receipts (
        key TEXT PRIMARY KEY,
        expires INTEGER NOT NULL,
        state TEXT NOT NULL,
        time INTEGER NOT NULL,
        note BLOB NOT NULL DEFAULT x''
    ) WITHOUT ROWID;
    CREATE INDEX receipts_expires ON receipts (expires);
    -- Other receipts: ids that were applied, as half of the hash in their key, in two generations. See `ids`.
    CREATE TABLE ids (generation INTEGER NOT NULL, half BLOB NOT NULL, PRIMARY KEY (generation, half)) WITHOUT ROWID;
    CREATE TABLE generations (number INTEGER PRIMARY KEY, expires INTEGER NOT NULL);
    INSERT INTO generations VALUES (0, 0), (1, 0);
    -- `time` counts commits; `now` is the file's own time in milliseconds, see `FileTime`.
    CREATE TABLE store (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        time INTEGER,
        applied INTEGER NOT NULL DEFAULT 0,
        deduplicated INTEGER NOT NULL DEFAULT 0,
        dead INTEGER NOT NULL DEFAULT 0,
        now INTEGER NOT NULL DEFAULT 0,
        followed TEXT NOT NULL DEFAULT '[]'
    );
    INSERT INTO store (only, time) VALUES (1, 0);
    -- The sum that swept receipts of a counter stood for: high * 2^32 + low, since it may be beyond int64.
    CREATE TABLE carried (counter TEXT PRIMARY KEY, high INTEGER NOT NULL, low INTEGER NOT NULL) WITHOUT ROWID;

    -- Guards of counters that were set. The version is the store's time of the last change.
    CREATE TABLE guards (counter TEXT PRIMARY KEY, version INTEGER NOT NULL, deleted INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX guards_deleted ON guards (counter) WHERE deleted;
    -- Import marks, which say how much of other applications' counters has been added.
    CREATE TABLE marks (
        source TEXT NOT NULL, counter TEXT NOT NULL, total INTEGER NOT NULL, PRIMARY KEY (source, counter)
    ) WITHOUT ROWID;

    -- A task is known by where its range begins. Tasks that wait have a table of their own.
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        prefix TEXT NOT NULL,
        delta INTEGER NOT NULL,
        created INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        open INTEGER NOT NULL,
        tasks INTEGER NOT NULL DEFAULT 0,
        visited INTEGER NOT NULL DEFAULT 0,
        changed INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        depth INTEGER NOT NULL DEFAULT 0,
        share INTEGER NOT NULL DEFAULT 0,
        examples TEXT NOT NULL DEFAULT '[]',
        state TEXT NOT NULL DEFAULT 'running',
        finished INTEGER NOT NULL DEFAULT 0,
        why TEXT NOT NULL DEFAULT '',
        span TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX jobs_expires ON jobs (expires);
    CREATE TABLE done_tasks (
        job TEXT NOT NULL, begin TEXT NOT NULL, note BLOB NOT NULL, chunk BLOB NOT NULL, PRIMARY KEY (job, begin)
    );
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        data BLOB NOT NULL,
        until INTEGER NOT NULL DEFAULT 0,
        attempt INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX tasks_until ON tasks (until);

    -- The bodies of dead receipts, and their counters, by which readings find them.
    CREATE TABLE bodies (key TEXT PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE dead (
        key TEXT NOT NULL, place INTEGER NOT NULL, counter TEXT NOT NULL, PRIMARY KEY (key, place)
    ) WITHOUT ROWID;
    CREATE INDEX dead_counter ON dead (counter);
    -- Counts by time. `followed` in `store` says which rules the commits of flushers followed, and until when.
    CREATE TABLE buckets (
        counter TEXT NOT NULL,
        period TEXT NOT NULL,
        begin INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
        expires INTEGER NOT NULL,
        PRIMARY KEY (counter, period, begin, shard)
    ) WITHOUT ROWID;
    CREATE INDEX buckets_expires ON buckets (expires);
    -- What counts by time know of dates, see `Dates`.
    CREATE TABLE dates (
        only INTEGER PRIMARY KEY CHECK (only = 1), closed INTEGER NOT NULL, latest INTEGER NOT NULL
    );
    INSERT INTO dates VALUES (1, 0, 0);

    -- See `shared.model.receipts`.
    CREATE TABLE promises (
        reach INTEGER NOT NULL, life INTEGER NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (reach, life)
    ) WITHOUT ROWID;
"""


def make_tables(db: sqlite3.Connection, path: Path) -> None:
    """Make all tables in an empty file, or none; the caller keeps others from doing so at the same time. Raises
    `SettingsError` if the file is of another version.
    """
    if flaw := flaw_of_version(db):
        raise SettingsError(f"{path} {flaw}")
    if version_of(db):
        return
    pragmas = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
    try:
        db.executescript(f"BEGIN IMMEDIATE; {_TABLES} {pragmas} COMMIT;")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def flaw_of_version(db: sqlite3.Connection) -> str | None:
    """Why this Countersink can't use a file of ours; None if it can, or if the file is empty."""
    version = version_of(db)
    if version > VERSION:
        return f"has schema {version}, this Countersink knows {VERSION}: use a newer Countersink"
    if 0 < version < VERSION:
        return (
            f"has schema {version}, of a build from before the first release: export its totals with that build, and"
            " count them into a new file, as docs/operations.md#upgrades says"
        )
    return None


def refuse_others(db: sqlite3.Connection, path: Path) -> None:
    """Raise `SettingsError` if the file belongs to another program. This only reads, and leaves the file as it is."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION_ID:
        raise SettingsError(f"{path} is a database of another program: choose another file")


def version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)
