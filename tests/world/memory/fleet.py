"""The fleet of processes that share a store in memory."""

from collections.abc import Callable
from dataclasses import replace

from shared.model.fleet import Fleet, first
from shared.model.times import BEGINNING, StoreMillis
from shared.ports.fleet import FleetLook
from tests.world.memory.store import MemoryStore


class MemoryFleetBook:
    """Keeps the fleet. Each change advances the store's time."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._fleet = Fleet()
        self._changed = BEGINNING

    async def look(self) -> FleetLook:
        return FleetLook(self._fleet, self._changed, await self._store.now())

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None]) -> FleetLook:
        now = await self._store.now()
        before = self._fleet if self._fleet.version else first(now, used=self._store.used())
        after = step(before, now)
        if after is not None:
            self._changed = self._store.tick()
            self._fleet = replace(after, version=before.version + 1)
            self._store.epoch = self._fleet.overlay.nonce
        return await self.look()
