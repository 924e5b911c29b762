"""Turns for which tenants queue: each has a queue of its own, and the queues take turns."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """A lock that is fair between tenants: one with many waiters gets no more turns than one with a single waiter. It
    has a place, or several.
    """

    def __init__(self, places: int = 1) -> None:
        self._free = places
        self._rows: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiters of each tenant. The tenants are in the order of their turns."""

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        """Wait for a turn. A place is taken when this returns."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rows.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # the turn was given to a waiter that has ended
            raise

    def _pass_on(self) -> None:
        while self._rows:
            tenant = next(iter(self._rows))
            row = self._rows.pop(tenant)
            turn = row.popleft()
            if row:
                self._rows[tenant] = row  # its next turn comes after all others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
