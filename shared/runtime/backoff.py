"""How long to wait before a retry: doubling, with jitter, up to a limit."""

import asyncio
import random
from collections.abc import Awaitable, Callable


class Backoff:
    """One row of tries."""

    def __init__(
        self,
        first: float = 0.05,
        most: float = 5.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._next = first
        self._most = most
        self._sleep = sleep
        self._jitter = jitter

    async def wait(self) -> None:
        """Between half of the time that is due and all of it."""
        delay = self._next
        self._next = min(self._next * 2, self._most)
        await self._sleep(delay * (0.5 + self._jitter() / 2))

    def reset(self) -> None:
        self._next = self._first
