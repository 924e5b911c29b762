"""The tasks of a job in memory: the queue of a process that runs a whole job alone."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import count

from shared.model.jobs import Lease, Task, written
from shared.runtime.retry import set_within


class MemoryTasks:
    """Hands out the newest task first, so that few wait at a time. Tasks that were given back come last. A lease lasts
    until its holder ends it: the queue ends with the process, too.
    """

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._held: dict[str, bytes] = {}
        self._tokens = map(str, count(1))
        self._arrived = asyncio.Event()

    async def publish(self, tasks: Sequence[Task]) -> None:
        self._waiting.extend(map(written, tasks))
        self._arrived.set()

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not self._waiting and wait > 0:
            self._arrived.clear()
            if not await set_within(self._arrived, wait):
                return ()
        leases = [Lease(next(self._tokens), self._waiting.pop()) for _ in range(min(limit, len(self._waiting)))]
        self._held.update(leases)
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        """Do nothing, since no lease ends by itself."""

    async def ack(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._held.pop(token, None)

    async def give_back(self, tokens: Sequence[str]) -> None:
        self._waiting.extendleft(self._held.pop(token) for token in tokens if token in self._held)
        self._arrived.set()
