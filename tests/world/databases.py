"""A SQLite file of its own for each test that wants one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.sqlite.database import Database


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "countersink.db")
    yield database
    await database.close()
