"""A network between processes and servers that delays, loses, repeats; and processes that stand still for a while."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from shared.model.errors import CountersinkError, TransientError
from tests.interleavings.simulation.loop import NOBODY

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
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Processes and the first words of calls that they can't make now."""
    calm: bool = False
    """Nothing is delayed or lost: idle hours pass."""
    dead: set[str] = field(default_factory=set)
    once: frozenset[str] = frozenset()
    """Calls that never arrive twice."""
    calls: int = 0
    trace: Any = field(default_factory=sha256)
    """Of all that happened: equal for equal runs."""

    async def call(self, owner: str, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        self.calls += 1
        if owner in self.dead:
            raise asyncio.CancelledError  # it was killed; what it does when it is cancelled never happened
        await self._stand(owner)
        if self.cut.get(name, 0.0) > loop.time() or (self.gone and (owner, name.partition(" ")[0]) in self.gone):
            await asyncio.sleep(self._delay())
            raise TransientError(f"{name}: connection refused")
        answer: asyncio.Future[Any] = loop.create_future()
        fate = 1.0 if self.calm else self.random.random()
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
        delay = self._delay()
        if not self.calm and self.random.random() < self.loss:
            delay += self.random.uniform(0, 5 * TIMEOUT)  # it comes when nobody waits for it any more
        loop = asyncio.get_running_loop()
        arrives = partial(self._arrive, owner, name, effect, answer)
        loop.call_later(delay, lambda: loop.create_task(arrives()), context=NOBODY)

    def _delay(self) -> float:
        return 0.0 if self.calm else self.random.expovariate(1 / self.latency)

    async def _arrive(
        self, owner: str, name: str, effect: Callable[[], Awaitable[Any]], answer: "asyncio.Future[Any] | None"
    ) -> None:
        await self._stand(name)
        self.trace.update(f"{asyncio.get_running_loop().time():.9f} {owner} {name}\n".encode())
        try:
            result, error = await effect(), None
        except CountersinkError as failure:
            result, error = None, failure
        await asyncio.sleep(self._delay())
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
