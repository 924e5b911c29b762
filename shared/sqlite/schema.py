"""Owns the tables, and how a file of an older version becomes one of this version."""

import sqlite3
from pathlib import Path
from typing import Final

from shared.model.errors import SettingsError
from shared.model.receipts import key_of_envelope

APPLICATION_ID: Final = 0x434F554E
"""'COUN', in the file's header: tells our files from others."""

MIGRATIONS: Final = (
    # Version 1
    """
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        data BLOB NOT NULL,
        attributes TEXT NOT NULL,
        published INTEGER NOT NULL,
        once TEXT,
        buried TEXT
    );
    CREATE UNIQUE INDEX messages_once ON messages (once) WHERE once IS NOT NULL AND buried IS NULL;

    -- Apart from the messages, so that a lease does not write their data again.
    CREATE TABLE leases (seq INTEGER PRIMARY KEY, until INTEGER NOT NULL, attempt INTEGER NOT NULL);
    CREATE INDEX leases_until ON leases (until);

    -- Which messages were deleted, for processes that keep the pending ones in memory.
    CREATE TABLE acks (number INTEGER PRIMARY KEY AUTOINCREMENT, seqs TEXT NOT NULL);

    -- The name belongs to the file, however its path is spelled. It is part of the id of messages without one.
    CREATE TABLE broker (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        name TEXT NOT NULL,
        head INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        floor INTEGER NOT NULL
    );
    INSERT INTO broker VALUES (1, lower(hex(randomblob(16))), 0, 0, 0);

    CREATE TABLE configs (counter TEXT PRIMARY KEY, num_shards INTEGER NOT NULL) WITHOUT ROWID;
    -- An overflowing sum would become REAL: the check makes it an error.
    CREATE TABLE shards (
        counter TEXT NOT NULL,
        shard INTEGER NOT NULL,
        count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
        PRIMARY KEY (counter, shard)
    ) WITHOUT ROWID;
    CREATE TABLE receipts (
        key TEXT PRIMARY KEY, expires INTEGER NOT NULL, state TEXT NOT NULL, time INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX receipts_expires ON receipts (expires);
    CREATE TABLE store (only INTEGER PRIMARY KEY CHECK (only = 1), time INTEGER);
    INSERT INTO store VALUES (1, 0);
    """,
    # Version 2: the sums that an audit compares. The increments of pending envelopes are counted here once, except
    # those of ours that have a receipt: a process may have been killed between a commit and its ack. What was applied
    # before counts as carried, since its receipts do not say what they stand for.
    """
    ALTER TABLE receipts ADD COLUMN note BLOB NOT NULL DEFAULT x'';
    ALTER TABLE messages ADD COLUMN increments INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE broker ADD COLUMN increments INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE broker ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE store ADD COLUMN applied INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE store ADD COLUMN deduplicated INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE store ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;
    UPDATE messages SET increments = (
        SELECT (SELECT count(*) FROM json_each(text, '$.counters'))
            + (SELECT coalesce(sum(value - 1), 0) FROM json_each(text, '$.counts'))
            + coalesce(json_array_length(text, '$.keyed'), 0)
            + (json_type(text, '$.counter') IS NOT NULL)
        FROM (SELECT CAST(data AS TEXT) AS text)
    ) WHERE buried IS NULL AND json_valid(CAST(data AS TEXT))
        AND key_of_envelope(coalesce(json_extract(attributes, '$."ce-id"'), '')) NOT IN (SELECT key FROM receipts);
    UPDATE broker SET increments = (SELECT coalesce(sum(increments), 0) FROM messages);
    UPDATE broker SET taken = increments;

    -- The sum that swept receipts of a counter stood for: high * 2^32 + low, since it may be beyond int64.
    CREATE TABLE carried (counter TEXT PRIMARY KEY, high INTEGER NOT NULL, low INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO carried SELECT counter, sum(count >> 32), sum(count & 4294967295) FROM shards GROUP BY counter;
    """,
    # Version 3: guards of counters that were set. The version is the store's time of the last change.
    """
    CREATE TABLE guards (counter TEXT PRIMARY KEY, version INTEGER NOT NULL, deleted INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX guards_deleted ON guards (counter) WHERE deleted;
    """,
    # Version 4: import marks, which say how much of other applications' counters has been added.
    """
    CREATE TABLE marks (
        source TEXT NOT NULL, counter TEXT NOT NULL, total INTEGER NOT NULL, PRIMARY KEY (source, counter)
    ) WITHOUT ROWID;
    """,
    # Version 5: jobs. A task is known by where its range begins. Tasks that wait have a table of their own.
    """
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
        why TEXT NOT NULL DEFAULT ''
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
    """,
    # Version 6: the id of the file, whatever the broker's name is. See `witness`.
    """
    ALTER TABLE broker ADD COLUMN id TEXT NOT NULL DEFAULT '';
    UPDATE broker SET id = lower(hex(randomblob(16)));
    """,
    # Version 7: the bodies of dead receipts, and their counters, by which readings find them.
    """
    CREATE TABLE bodies (key TEXT PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE dead (
        key TEXT NOT NULL, place INTEGER NOT NULL, counter TEXT NOT NULL, PRIMARY KEY (key, place)
    ) WITHOUT ROWID;
    CREATE INDEX dead_counter ON dead (counter);
    """,
    # Version 8: the file's own time in milliseconds, see `time`. Receipts of older versions expire by a wall clock, and
    # lived for 40 days at most: 31 days of retention, 1 day, and 8 days for ids of clients.
    # `since` is the file's time when a message was first leased. While the message is there, no receipt that was made
    # since then is swept. For promises, see `shared.model.promises`.
    """
    ALTER TABLE store ADD COLUMN now INTEGER NOT NULL DEFAULT 0;
    UPDATE store SET now = (SELECT max(coalesce(max(expires), 0) - 40 * 86400000, 0) FROM receipts);
    ALTER TABLE leases ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE messages ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX messages_buried ON messages (since) WHERE buried IS NOT NULL;
    CREATE TABLE promises (
        reach INTEGER NOT NULL, life INTEGER NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (reach, life)
    ) WITHOUT ROWID;
    """,
    # Version 9: `since` is the file's time when a message was accepted. No receipt that lived then is swept while the
    # message is there: it may be the receipt of an id in the message. Nobody knows when the messages of older versions
    # were accepted, so all of them count from when the first of them was leased.
    """
    UPDATE messages SET since = (
        SELECT min(since) FROM (
            SELECT since FROM leases UNION ALL SELECT since FROM messages WHERE buried IS NOT NULL
            UNION ALL SELECT now FROM store
        )
    );
    DROP INDEX messages_buried;
    ALTER TABLE leases DROP COLUMN since;
    """,
)


def migrate(db: sqlite3.Connection, path: Path, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the file to this version in one transaction. An empty file gets all tables."""
    if (_application(db), _version(db)) == (APPLICATION_ID, len(migrations)):
        return
    db.create_function("key_of_envelope", 1, key_of_envelope)
    db.execute("BEGIN IMMEDIATE")
    try:
        refuse_others(db, path)
        version = _version(db)
        if version > len(migrations):
            raise SettingsError(
                f"{path} has schema {version}, this Countersink knows up to {len(migrations)}: use a newer one"
            )
        for script in migrations[version:]:
            for statement in _statements(script):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(migrations)}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def refuse_others(db: sqlite3.Connection, path: Path) -> None:
    """Raise `SettingsError` if the file belongs to another program. This only reads, and leaves the file as it is."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and _application(db) != APPLICATION_ID:
        raise SettingsError(f"{path} is a database of another program: choose another file")


def _application(db: sqlite3.Connection) -> int:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    return int(application)


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(script: str) -> list[str]:
    """The statements one by one, since `executescript` would commit first. Each must end at the end of a line."""
    statements, text = [], ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements
