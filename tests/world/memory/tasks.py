"""The tasks of jobs in memory, with leases: a queue that outlives the workers that use it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from shared.model.jobs import Lease, Task, written
from shared.runtime.clock import Clock
from shared.runtime.retry import set_within


@dataclass
class _LeasedTask:
    task: Task
    until: float = 0.0
    lease: int = 0


class LeasedTasks:
    """Hands out the newest task first, so that few wait at a time. Tasks that were given back come last."""

    def __init__(self, clock: Clock, lease: float = 60.0) -> None:
        self._clock = clock
        self._lease = lease
        self._held: dict[int, _LeasedTask] = {}
        self._last = 0
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    async def publish(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._last += 1
            self._held[self._last] = _LeasedTask(task)
        self._arrived.set()

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not self._free() and wait > 0:
            self._arrived.clear()
            if not await set_within(self._arrived, wait):
                return ()
        leases = []
        for number in self._free()[:limit]:
            held = self._held[number]
            held.lease += 1
            held.until = self._clock.monotonic() + self._lease
            leases.append(Lease(f"{number}.{held.lease}", written(held.task)))
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        for held in map(self._leased, tokens):
            if held:
                held.until = self._clock.monotonic() + self._lease

    async def ack(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if self._leased(token):
                del self._held[int(token.partition(".")[0])]

    async def give_back(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if held := self._leased(token):
                held.until = 0.0
                number = int(token.partition(".")[0])
                self._held = {number: self._held.pop(number)} | self._held
        self._arrived.set()

    def _free(self) -> list[int]:
        now = self._clock.monotonic()
        return [number for number, held in reversed(self._held.items()) if held.until <= now]

    def _leased(self, token: str) -> _LeasedTask | None:
        number, _, lease = token.partition(".")
        held = self._held.get(int(number))
        return held if held and held.lease == int(lease) and held.until > 0 else None
