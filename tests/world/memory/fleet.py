"""The fleet of processes that share a store in memory."""

from collections.abc import Callable, Collection
from dataclasses import replace

from shared.model.buckets import BEGINNING, StoreMillis
from shared.model.fleet import Fleet, first
from shared.ports.store import FleetLook, Left
from tests.world.memory.store import MemoryStore


class MemoryFleetBook:
    """Keeps the fleet. Each change advances the store's time."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._fleet = Fleet()
        self._changed = BEGINNING
        self._left: dict[str, Collection[str]] = {}

    async def look(self) -> FleetLook:
        return FleetLook(self._fleet, self._changed, await self._store.now())

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        now = await self._store.now()
        before = self._fleet if self._fleet.version else first(now, used=self._store.used())
        after = step(before, now)
        if after is not None:
            self._changed = self._store.tick()
            self._fleet = replace(after, version=before.version + 1)
            self._store.epoch = self._fleet.overlay.nonce
            if left is not None:
                self._left[left.member] = left.receipts
            self._left = {member: its for member, its in self._left.items() if member in after.members}
        return await self.look()

    async def left_by(self, member: str) -> Collection[str] | None:
        return self._left.get(member)
