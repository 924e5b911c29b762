"""Retries and waits: `insist` repeats a call that may succeed later, `Backoff` says how long to pause, `forever`
repeats steps, `set_within` waits for an event; `Drain` says when a client that was refused should come back.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Final, TypeVar

from shared.model.errors import TransientError
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Stop(asyncio.Event):
    """Set once, when the process is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.at: float | None = None
        """When it was set, by the event loop's time."""

    def set(self) -> None:
        if self.at is None:
            self.at = asyncio.get_running_loop().time()
        super().set()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for so long until the event is set. Returns whether it was."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def all_of(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do all of them at once, and wait for all even if one fails, so that none continues unseen. Then raise the first
    error, or return the results.
    """
    ends = await asyncio.gather(*works, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return ends  # type: ignore[return-value] # no error is left among them


async def ended(task: "asyncio.Task[None] | None") -> None:
    """Cancel the task, if there is one, and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def forever(step: Callable[[], Awaitable[object]], interval: float) -> None:
    """Take the step every `interval` seconds. A `TransientError` is logged with the name of the task, and any other
    error ends the loop.
    """
    task = asyncio.current_task()
    while True:
        await asyncio.sleep(interval)
        try:
            await step()
        except TransientError as error:
            _log.warning("a step of %r failed and is tried again: %s", task and task.get_name(), error)


Errors = type[Exception] | tuple[type[Exception], ...]
Limit = Callable[[], bool]
"""Asked after each failure: whether there may be another try."""


class Backoff:
    """The pauses between the tries of one call: each is twice as long as the one before, up to a limit, with jitter."""

    def __init__(
        self,
        first: float = 0.05,
        most: float = 5.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`first` and `most` are in seconds."""
        self._first = first
        self._next = first
        self._most = most
        self._sleep = sleep
        self._jitter = jitter

    async def wait(self) -> None:
        """Pause for a random time between half of the next pause and all of it."""
        delay = self._next
        self._next = min(self._next * 2, self._most)
        await self._sleep(delay * (0.5 + self._jitter() / 2))

    def reset(self) -> None:
        self._next = self._first


def after_conflict() -> Backoff:
    """The pauses before a commit is tried again that somebody else's commit has kept from happening."""
    return Backoff(0.01, 0.5)


def tries(number: int) -> Limit:
    """Allow this number of tries in all."""
    made = count(1)
    return lambda: next(made) < number


def within(seconds: float, clock: Clock) -> Limit:
    """Allow tries until this time has passed, counted from now."""
    until = clock.monotonic() + seconds
    return lambda: clock.monotonic() < until


async def insist(
    call: Callable[[], Awaitable[T]], on: Errors, limit: Limit, backoff: Backoff, *, never: Errors = ()
) -> T:
    """Repeat the call while it raises an error of `on`, and return its result.

    Each error of `never`, even one that is also of `on`, is raised at once. So is any other error, and an error of `on`
    when the limit allows no more tries.
    """
    while True:
        try:
            return await call()
        except never:
            raise
        except on:
            if not limit():
                raise
        await backoff.wait()


# How fast a queue empties, and so when a client that was refused should come back. Pure.


SOONEST: Final = 1.0
LATEST: Final = 30.0
"""Seconds. No client is told to wait longer, because no estimate reaches further."""


class Drain:
    """The rate at which the last `memory` units left the queue. Measure only while the queue is long: what leaves a
    short queue tells how little arrived. Time in which nothing left a long queue counts.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._gone = 0.0
        self._took = 0.0
        self._since: float | None = None
        """When something last left, or when the queue became long."""

    def begins(self, now: float) -> None:
        """The queue has become long."""
        self._since = now

    def left(self, amount: float, now: float, *, last: bool = False) -> None:
        """Note that this amount has left. `last`: the queue is not long any more."""
        keep = self._memory / (self._memory + amount)
        self._gone = self._gone * keep + amount
        self._took = self._took * keep + self._waited(now)
        self._since = None if last else now

    def seconds(self, amount: float, now: float) -> float:
        """How long it will take until this amount has left, from `SOONEST` to `LATEST`. If nothing ever left: as long
        as the queue has been long.
        """
        took = self._took + self._waited(now)
        seconds = max(amount, 0) * took / self._gone if self._gone else took
        return min(max(seconds, SOONEST), LATEST)

    def _waited(self, now: float) -> float:
        return 0.0 if self._since is None else max(now - self._since, 0.0)
