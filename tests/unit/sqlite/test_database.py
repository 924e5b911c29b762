"""The SQLite file: versions, files of other programs, and group commit."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from shared.model.envelope import Envelope
from shared.model.errors import SettingsError, StorageFullError
from shared.model.receipts import key_of_envelope
from shared.model.times import Instant, StoreMillis
from shared.model.words import Balance, Commit, Increment, Receipt
from shared.runtime.clock import ManualClock
from shared.sqlite.balance import SqliteBalance
from shared.sqlite.books import MOST_READ
from shared.sqlite.broker import SqliteSubscription
from shared.sqlite.database import Database
from shared.sqlite.schema import MIGRATIONS, migrate
from shared.sqlite.store import SqliteStore
from shared.wire.codec import encode


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "countersink.db")
    yield database
    await database.close()


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_an_older_file_is_brought_up_to_date_and_keeps_its_data(tmp_path: Path) -> None:
    path = tmp_path / "file"
    db = opened(path)
    migrate(db, path, ("CREATE TABLE one (a);\nINSERT INTO one VALUES (1);",))
    newer = ("never run again", "ALTER TABLE one ADD COLUMN b DEFAULT 2;", "UPDATE one SET b = b + a;")
    migrate(db, path, newer)
    assert db.execute("SELECT a, b FROM one").fetchall() == [(1, 3)]
    assert db.execute("PRAGMA user_version").fetchone() == (3,)
    db.close()


async def test_a_file_of_version_1_adds_up_from_then_on(tmp_path: Path) -> None:
    """What is on its way is counted then; what was applied is carried, since its receipts say nothing."""
    path = tmp_path / "file"
    with closing(opened(path)) as db:
        migrate(db, path, MIGRATIONS[:1])
        keyed = (Increment("c", 1, "x"),)
        rows = [
            (encode(Envelope("e1", {"a": 7, "b": 1}, {"a": 3}, keyed)).data, None),
            (b'{"counter": "a"}', None),
            (b"rubbish", None),
            (b'{"counter": "dead"}', "refused"),
        ]
        db.executemany("INSERT INTO messages (data, attributes, published, buried) VALUES (?, '{}', 0, ?)", rows)
        sums = [("a", 0, 2**62), ("a", 1, 2**62), ("b", 0, -(2**62)), ("c", 0, -1)]
        db.executemany("INSERT INTO shards VALUES (?, ?, ?)", sums)
        db.execute("INSERT INTO receipts VALUES ('k', 1, 'applied', 1)")
    database = Database(path)
    assert SqliteBalance(database).read() == Balance(6, 0)
    async with SqliteStore(database, ManualClock()).books() as books:
        carried = {config.counter: config.carried async for page in books.configs() for config in page}
        notes = [one.receipt.note async for page in books.receipts() for one in page]
    assert (carried, notes) == ({"a": 2**63, "b": -(2**62), "c": -1}, [b""])
    await database.close()


@pytest.mark.parametrize("state", ["applied", "dead"])
async def test_what_was_settled_and_not_acknowledged_before_the_migration_leaves_no_drift(
    tmp_path: Path, state: str
) -> None:
    path = tmp_path / "file"
    message = encode(Envelope("e1", {"a": 7}, {"a": 7}))
    with closing(opened(path)) as db:
        migrate(db, path, MIGRATIONS[:1])
        row = (message.data, orjson.dumps(message.attributes).decode())
        db.execute("INSERT INTO messages (data, attributes, published) VALUES (?, ?, 0)", row)
        db.execute("INSERT INTO receipts VALUES (?, 1, ?, 1)", (key_of_envelope("e1"), state))
    database = Database(path)
    balance = SqliteBalance(database)
    assert balance.read() == Balance(0, 0)
    broker = SqliteSubscription(database, ManualClock(), 60.0)
    (held,) = await broker.pull(10, 10**6, 0)
    if state == "applied":
        await broker.ack([held.token], Instant(1))
    else:
        await broker.bury(held, "given up before")
    assert balance.read() == Balance(0, 0)
    await database.close()


async def test_a_page_of_large_receipts_is_short(database: Database) -> None:
    """An audit holds one page in memory."""
    store = SqliteStore(database, ManualClock())
    note, count = b"x" * 400_000, 7
    for number in range(count):
        await store.apply(Commit((Receipt(f"e{number}", StoreMillis(1), "applied", note),), ()))
    async with store.books() as books:
        pages = [[one.receipt.key for one in page] async for page in books.receipts()]
    assert [key for page in pages for key in page] == [f"e{number}" for number in range(count)]
    assert {len(page) * len(note) <= MOST_READ + len(note) for page in pages} == {True}


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    db = opened(path)
    with pytest.raises(sqlite3.Error):
        migrate(db, path, ("CREATE TABLE one (a);\nCREATE TABLE one (a);",))
    assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    assert db.execute("PRAGMA user_version").fetchone() == (0,)
    db.close()


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    db = opened(path)
    migrate(db, path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(SettingsError, match="use a newer one"):
        migrate(db, path)
    db.close()


async def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    db = opened(path)
    db.execute("CREATE TABLE theirs (a)")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    db.close()
    with pytest.raises(SettingsError, match="another program"):
        Database(path)
    db = opened(path)
    assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    db.close()


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(SettingsError, match="not a database"):
        Database(path)


async def test_one_that_fails_does_not_take_its_group_along(database: Database) -> None:
    def add(db: sqlite3.Connection) -> int:
        return db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()[0]  # type: ignore[no-any-return]

    def fail(db: sqlite3.Connection) -> int:
        add(db)
        raise ValueError("mine")

    works = [fail if number % 5 == 0 else add for number in range(40)]
    outcomes = await asyncio.gather(*map(database.write, works), return_exceptions=True)
    assert [isinstance(outcome, ValueError) for outcome in outcomes] == [work is fail for work in works]
    assert sorted(outcome for outcome in outcomes if isinstance(outcome, int)) == list(range(1, 33))


async def test_a_cancelled_write_disturbs_no_other(database: Database) -> None:
    def add(db: sqlite3.Connection) -> None:
        db.execute("UPDATE store SET time = time + 1")

    waiting = [asyncio.ensure_future(database.write(add)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    assert await asyncio.gather(*waiting[1::2]) == [None] * 5


async def test_a_full_disk_is_said_so_and_the_file_goes_on(database: Database) -> None:
    (pages,) = await database.write(lambda db: db.execute("PRAGMA page_count").fetchone())

    def grow(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO messages (data, attributes, published) VALUES (zeroblob(100000), '{}', 0)")

    def limit(most: int) -> None:
        database._db.execute(f"PRAGMA max_page_count = {most}")

    limit(pages + 2)
    with pytest.raises(StorageFullError, match="free some space"):
        await database.write(grow)
    limit(pages + 1_000)
    await database.write(grow)
    assert database.reader().execute("SELECT count(*) FROM messages").fetchone() == (1,)
