"""The fleet in memory, held to the contract."""

import pytest

from tests.contracts.fleets import FleetContract, Shared
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


class TestMemory(FleetContract):
    @pytest.fixture
    async def shared(self) -> Shared:
        store = MemoryStore(ManualClock())
        book = MemoryFleetBook(store)
        return Shared(book, book, store)
