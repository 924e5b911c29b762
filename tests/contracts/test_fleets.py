"""The fleet in memory and in a SQLite file, held to the contract."""

import pytest

from shared.clock import ManualClock
from shared.memory.fleet import MemoryFleetBook
from shared.memory.store import MemoryStore
from shared.sqlite.database import Database
from shared.sqlite.fleet import SqliteFleetBook
from shared.sqlite.store import SqliteStore
from tests.contracts.fleets import FleetContract, Shared


class TestMemory(FleetContract):
    @pytest.fixture
    async def shared(self) -> Shared:
        store = MemoryStore(ManualClock())
        book = MemoryFleetBook(store)
        return Shared(book, book, store)


class TestSqlite(FleetContract):
    @pytest.fixture
    async def shared(self, database: Database, another: Database) -> Shared:
        clock = ManualClock()
        return Shared(SqliteFleetBook(database, clock), SqliteFleetBook(another, clock), SqliteStore(database, clock))
