"""A network between processes and servers that delays, loses, repeats; and processes that stand still for a while."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from shared.errors import CountersinkError, TransientError

TIMEOUT = 1.0
"""Virtual seconds after which a caller gives up. What it sent may still arrive."""


@dataclass
class Network:
    """Each call has a fate of its own."""

    random: random.Random
    loss: float = 0.0
    """Chance of a request that never arrives, of one whose answer is lost, of one that arrives twice."""
    latency: float = 0.01
    stopped: dict[str, float] = field(default_factory=dict)
    """Processes, or servers by the first letters of their calls' names, that stand still until then."""
    cut: dict[str, float] = field(default_factory=dict)
    """Calls that nobody takes until then."""
    dead: set[str] = field(default_factory=set)
    once: frozenset[str] = frozenset()
    """Calls that never arrive twice."""
    calls: int = 0
    trace: Any = field(default_factory=sha256)
    """Of all that happened: equal for equal runs."""

    async def call(self, owner: str, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        self.calls += 1
        await self._stand(owner)
        if self.cut.get(name, 0.0) > loop.time():
            await asyncio.sleep(self.random.expovariate(1 / self.latency))
            raise TransientError(f"{name}: connection refused")
        answer: asyncio.Future[Any] = loop.create_future()
        fate = self.random.random()
        if fate >= self.loss:  # else it never arrives
            self._send(owner, name, effect, None if fate < 2 * self.loss else answer)
        if 2 * self.loss <= fate < 3 * self.loss and name not in self.once:
            self._send(owner, name, effect, None)
        try:
            async with asyncio.timeout(TIMEOUT):
                result = await answer
        except TimeoutError:
            raise TransientError(f"{name}: no answer") from None
        await self._stand(owner)
        return result

    def _send(
        self, owner: str, name: str, effect: Callable[[], Awaitable[Any]], answer: "asyncio.Future[Any] | None"
    ) -> None:
        delay = self.random.expovariate(1 / self.latency)
        if self.random.random() < self.loss:
            delay += self.random.uniform(0, 5 * TIMEOUT)  # it comes when nobody waits for it any more
        loop = asyncio.get_running_loop()
        loop.call_later(delay, lambda: loop.create_task(self._arrive(owner, name, effect, answer)))

    async def _arrive(
        self, owner: str, name: str, effect: Callable[[], Awaitable[Any]], answer: "asyncio.Future[Any] | None"
    ) -> None:
        await self._stand(name)
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {owner} {name}\n".encode())
        try:
            result, error = await effect(), None
        except CountersinkError as failure:
            result, error = None, failure
        await asyncio.sleep(self.random.expovariate(1 / self.latency))
        if answer is not None and not answer.done() and owner not in self.dead:
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    async def _stand(self, who: str) -> None:
        now = asyncio.get_running_loop().time()
        until = self.stopped.get(who, 0.0)
        if until > now:
            await asyncio.sleep(until - now)
