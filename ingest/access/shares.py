"""What requests take for as long as they last: places, which are divided by shares, and turns, which tenants take."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from shared.http.shares import Shares, excess_of
from shared.model.errors import OverloadedError, ShareError


class Places(Shares):
    """Tenants take places for as long as a request lasts. Their shares are rounded up to a whole request, as there may
    be room for few: so a client that is alone may have two of three.
    """

    def __init__(self, most: int, are: str, instead: str) -> None:
        """`are` says what takes the places, as in "6 ARE"; `instead` says what a client can do if none is left."""
        super().__init__(most)
        self._are = are
        self._instead = instead

    @contextmanager
    def take(self, tenant: str, number: int = 1) -> Iterator[None]:
        """Have places for the tenant. Raises `ShareError` if that is more than its share, `OverloadedError` if there
        are not so many left.
        """
        if self.left(number) < 0:
            raise OverloadedError(f"{self.held} {self._are}: try again later, or {self._instead}")
        if excess_of(self.held_by(tenant), number, self.left(0)):
            raise ShareError(
                f"{self.held_by(tenant)} {self._are} for this client ({tenant}), which is its share of the"
                f" {self.limit} that may:"
                f" end some of them, or {self._instead}"
            )
        self.enter(tenant, number)
        try:
            yield
        finally:
            self.leave(tenant, number)


# Turns for which tenants queue: each has a queue of its own, and the queues take turns.


class FairLock:
    """A lock that is fair between tenants: one with many waiters gets no more turns than one with a single waiter. It
    has a place, or several. There are no shares of turns, as nobody is refused one.
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
