"""Makes the tables of a file, converts files of earlier releases, and refuses those of later ones and of others.

A file says which tables it has with a number, its schema (`user_version`), and names the first release that knows
them in its table `release`. For example, 0.1.0 made a file with schema 15, and 0.2.0, whose schema is 16, opens it:

1. Nobody else may have the file open: a process of 0.1.0 would go on writing to tables that it does not know.
2. The file is copied to `countersink.db-schema-15`.
3. The steps that are missing run in one transaction, which also writes 16 and 0.2.0.

Killed before the end of 3, the next start begins again. After it, 0.1.0 refuses the file and
names the release to use.
"""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from shared.model.errors import SettingsError
from shared.sqlite.backup import copy, remove_unfinished
from shared.sqlite.data_file import Log, opened, sighting_of, sighting_without_log

_log = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x434F554E
"""'COUN', in the file's header: tells our files from others."""


class Step(NamedTuple):
    """What makes the tables of one schema those of the next."""

    release: str
    """The first release with this step."""
    script: str
    """Statements of SQLite. `_TABLES` must have the same effect on a new file."""


FIRST: Final = 15
"""The schema of 0.1.0. Builds before that release made files of earlier schemas, which are refused."""
STEPS: tuple[Step, ...] = ()
"""The steps from `FIRST` on. A step that was released never changes."""
ROOM: Final = 2
"""How many times its own size a file needs for its conversion: once for the copy, and once for what the steps write."""
_TABLES: Final = """
    -- The first release that knows these tables. Each later schema has this table, too: earlier releases read it.
    CREATE TABLE release (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL);
    INSERT INTO release VALUES (1, '');

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
    -- An overflowing sum would become REAL: the check makes it an error. `updated` is when something was added last, in
    -- milliseconds, by the clock of the machine.
    CREATE TABLE shards (
        counter TEXT NOT NULL,
        shard INTEGER NOT NULL,
        count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
        updated INTEGER NOT NULL DEFAULT 0,
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
    -- Other receipts: ids that were applied, as the hash in their key, in two generations. See `ids`.
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

    -- What is told to others, see `sqlite/feed.py`: the rules, and where a sweep goes on (NULL: it has ended).
    CREATE TABLE feed (only INTEGER PRIMARY KEY CHECK (only = 1), rules TEXT NOT NULL, swept TEXT);
    INSERT INTO feed VALUES (1, '', NULL);
    -- Counters that were told, or have to be: the time of the last change that was not told, or 0; and when they may be
    -- told, by the file's own time.
    CREATE TABLE owed (counter TEXT PRIMARY KEY, changed INTEGER NOT NULL, due INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX owed_due ON owed (due) WHERE changed > 0;
    CREATE INDEX owed_rest ON owed (due) WHERE changed = 0;
    -- The highest total that was judged by thresholds. Of another generation than the guard's, it says nothing.
    CREATE TABLE heights (counter TEXT PRIMARY KEY, generation INTEGER NOT NULL, height INTEGER NOT NULL) WITHOUT ROWID;
    -- Thresholds that were reached and not told: `first`, `first + step` and so on up to `last`.
    CREATE TABLE reached (
        number INTEGER PRIMARY KEY,
        counter TEXT NOT NULL,
        generation INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        step INTEGER NOT NULL,
        value INTEGER NOT NULL,
        time INTEGER NOT NULL,
        wall INTEGER NOT NULL,
        due INTEGER NOT NULL
    );
    CREATE INDEX reached_due ON reached (due, number);
"""

ACCOUNTS: Final = """
    -- Keeps the accounts of what is published through this connection. The weight is that of `broker.weight_of`: a
    -- quotation mark is one byte, whatever bytes are beside it.
    CREATE TEMP TRIGGER accounts AFTER INSERT ON messages BEGIN
        UPDATE broker SET
            bytes = bytes + length(new.data) + length(new.attributes)
                + 12 * (length(new.data) - length(CAST(replace(new.data, '"', '') AS BLOB))),
            increments = increments + new.increments,
            taken = taken + new.increments;
    END
"""


class InUseError(SettingsError):
    """Another process has the file open."""


def newest() -> int:
    """The schema of the files that this version makes."""
    return FIRST + len(STEPS)


def newest_release() -> str:
    """The first release that makes such files."""
    return STEPS[-1].release if STEPS else "0.1.0"


def make_tables(db: sqlite3.Connection, path: Path) -> None:
    """Make all tables in an empty file, or convert an older one, or change nothing. The caller keeps others from doing
    so at the same time. Raises `SettingsError` if the file is of a later release, or has no room for its conversion,
    and `InUseError` if it has to be converted while others have it open.
    """
    if flaw := flaw_of_version(db, path):
        raise SettingsError(f"{path} {flaw}")
    version = version_of(db)
    if not version:
        _run(db, _TABLES)
    elif version < newest():
        _be_alone(db, path)
        kept = _keep_copy(db, path)
        _run(db, "".join(f"{step.script};\n" for step in STEPS[version - FIRST :]))
        _log.warning("%s was converted from schema %d to %d; %s is as it was before", path, version, newest(), kept)


def _run(db: sqlite3.Connection, script: str) -> None:
    """Run it as a whole or not at all."""
    script += f"UPDATE release SET name = '{newest_release()}';"  # noqa: S608 (a constant)
    pragmas = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {newest()};"
    try:
        db.executescript(f"BEGIN IMMEDIATE; {script} {pragmas} COMMIT;")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _be_alone(db: sqlite3.Connection, path: Path) -> None:
    """Raise `InUseError` if another connection is open. SQLite only leaves WAL if there is none. Those that come
    later wait for the caller's lock.
    """
    db.execute("BEGIN IMMEDIATE")
    Log(path).inherit()
    db.execute("ROLLBACK")
    try:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        said = f"has schema {version_of(db)}, and other processes use it: stop them, and the next start converts it"
        raise InUseError(f"{path} {said}") from error


def _keep_copy(db: sqlite3.Connection, path: Path) -> Path:
    """Copy the file, unless a start that was killed has done so."""
    kept = _copy_of(path, version_of(db))
    remove_unfinished(kept)
    if not kept.exists():
        if flaw := flaw_of_room(db, path):
            raise SettingsError(f"{path} {flaw}")
        copy(path, kept)
    elif sighting_without_log(kept) != sighting_of(db):
        raise SettingsError(
            f"{kept} is from an earlier upgrade: move it away, so that {path} can be copied to its place"
        )
    return kept


def _copy_of(path: Path, version: int) -> Path:
    return Path(f"{path}-schema-{version}")


def flaw_of_room(db: sqlite3.Connection, path: Path) -> str | None:
    """Why a file can't be converted on its disk; None if it can."""
    (pages,), (size,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
    disk, needed = os.statvfs(path.parent), ROOM * int(pages) * int(size)
    if (free := disk.f_bavail * disk.f_frsize) >= needed:
        return None
    return (
        f"has schema {version_of(db)}, and its conversion needs {needed / 2**20:,.0f} MiB on its disk, where"
        f" {free / 2**20:,.0f} MiB are free: free some space, or move the file to a larger disk"
    )


def flaw_of_version(db: sqlite3.Connection, path: Path) -> str | None:
    """Why this Countersink can't use a file of ours; None if it can, or if the file is empty."""
    version = version_of(db)
    if version > newest():
        return f"has schema {version}, and this Countersink knows {newest()}: use {_which(db)}{_or_back(path)}"
    if 0 < version < FIRST:
        return (
            f"has schema {version}, of a build from before the first release: export its totals with that build, and"
            " count them into a new file, as docs/upgrading.md says"
        )
    return None


def refuse_older(path: Path) -> None:
    """Raise `SettingsError` if opening the file converts it."""
    try:
        with opened(path, "ro") as db:
            version = version_of(db)
    except sqlite3.Error:
        return  # opening it says why
    if FIRST <= version < newest():
        raise SettingsError(
            f"{path} has schema {version}, which the next start of {newest_release()} converts to {newest()}."
            " This command changes nothing: run that of the release before, or start the service first"
        )


def _which(db: sqlite3.Connection) -> str:
    try:
        (name,) = db.execute("SELECT name FROM release").fetchone()
    except (sqlite3.Error, TypeError):
        return "a newer Countersink"
    return f"Countersink {name} or later"


def _or_back(path: Path) -> str:
    kept = _copy_of(path, newest())
    return f", or go back to {kept}, as docs/upgrading.md says" if kept.exists() else ""


def refuse_others(db: sqlite3.Connection, path: Path) -> None:
    """Raise `SettingsError` if the file belongs to another program. This only reads, and leaves the file as it is."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION_ID:
        raise SettingsError(f"{path} is a database of another program: choose another file")


def version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)
