"""A SQLite file of its own for each test that wants one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "countersink.db")
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> SqliteStore:
    return SqliteStore(database, ManualClock())
