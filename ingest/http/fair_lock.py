"""Owns whose turn it is to do what only one may do at a time: the tenants take turns, each with his own row."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Who has many waiting gets no more turns than who has one. As many may wait as are let in before."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[asyncio.Future[None]]] = {}
        """Tenants in the order of their turns."""
        self._taken = False

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        if self._taken:
            await self._wait(tenant)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        """It is taken when this returns."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rows.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was given, and will not be used
            raise

    def _pass_on(self) -> None:
        while self._rows:
            tenant = next(iter(self._rows))
            row = self._rows.pop(tenant)
            turn = row.popleft()
            if row:
                self._rows[tenant] = row  # behind all others
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False
