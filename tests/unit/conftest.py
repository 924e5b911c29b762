"""The store of a test's own file."""

import pytest

from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock


@pytest.fixture
def store(database: Database) -> SqliteStore:
    return SqliteStore(database, ManualClock())
