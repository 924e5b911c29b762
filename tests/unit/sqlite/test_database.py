"""The SQLite file: versions, files of other programs, and group commit."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from shared.model.buckets import StoreMillis
from shared.model.errors import SettingsError, StorageFullError
from shared.model.words import Commit, Receipt
from shared.sqlite import schema
from shared.sqlite.audit_data import MOST_READ
from shared.sqlite.database import Database
from shared.sqlite.schema import VERSION
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "countersink.db")
    yield database
    await database.close()


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def test_a_page_of_large_receipts_is_short(database: Database) -> None:
    """An audit holds one page in memory."""
    store = SqliteStore(database, ManualClock())
    note, count = b"x" * 400_000, 7
    for number in range(count):
        await store.apply(Commit((Receipt(f"e{number}", StoreMillis(1), "applied", note),), ()))
    async with store.audit_data() as data:
        pages = [[one.receipt.key for one in page] async for page in data.receipts()]
    assert [key for page in pages for key in page] == [f"e{number}" for number in range(count)]
    assert {len(page) * len(note) <= MOST_READ + len(note) for page in pages} == {True}


def test_tables_that_can_not_all_be_made_are_not_made_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_TABLES", "CREATE TABLE one (a);\nCREATE TABLE one (a);")
    with closing(opened(tmp_path / "file")) as db:
        with pytest.raises(sqlite3.Error):
            schema.make_tables(db, tmp_path / "file")
        assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        assert db.execute("PRAGMA user_version").fetchone() == (0,)


@pytest.mark.parametrize(
    ("version", "what"), [(VERSION + 1, "use a newer Countersink"), (VERSION - 1, "export its totals with that build")]
)
async def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: int, what: str) -> None:
    path = tmp_path / "file"
    await Database(path).close()
    with closing(opened(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SettingsError, match=f"has schema {version}.*{what}"):
        Database(path)
    with closing(opened(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (version,)


async def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    db = opened(path)
    db.execute("CREATE TABLE theirs (a)")
    db.execute(f"PRAGMA user_version = {VERSION}")
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
