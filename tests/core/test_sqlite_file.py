"""The file: versions, other programs' files, and the group commit."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.errors import SettingsError, StorageFullError
from shared.sqlite.database import Database
from shared.sqlite.schema import MIGRATIONS, migrate


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


async def test_who_does_not_wait_any_more_disturbs_nobody(database: Database) -> None:
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
