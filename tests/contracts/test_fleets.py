"""The fleet in memory, held to the contract."""

import pytest

from shared.memory.fleet import MemoryFleetBook
from shared.memory.store import MemoryStore
from shared.runtime.clock import ManualClock
from tests.contracts.fleets import FleetContract, Shared


class TestMemory(FleetContract):
    @pytest.fixture
    async def shared(self) -> Shared:
        store = MemoryStore(ManualClock())
        book = MemoryFleetBook(store)
        return Shared(book, book, store)
