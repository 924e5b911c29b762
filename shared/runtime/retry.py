"""Retries: `insist` repeats a call that may succeed later, `Backoff` says how long to pause, `supervise` repeats
steps.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import TypeVar

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


async def all_of(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do all of them at once, and wait for all even if one fails, so that none goes on unseen. Then raise the first
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
    """Take the step every `interval` seconds. A `TransientError` is logged, and any other error ends the loop."""
    while True:
        await asyncio.sleep(interval)
        try:
            await step()
        except TransientError as error:
            _log.warning("%s failed and is tried again: %s", getattr(step, "__name__", step), error)


# Retries: `insist` repeats a call that may succeed later, and `Backoff` says how long to pause between two tries.


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
        """Begin again with the shortest pause, after a success."""
        self._next = self._first


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
