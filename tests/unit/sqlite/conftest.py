"""Who publishes to the file of a test."""

import pytest

from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from tests.world.manual_clock import ManualClock


@pytest.fixture
def publisher(database: Database) -> SqlitePublisher:
    return SqlitePublisher(database, ManualClock(), 10**9)
