"""Repeats background steps, and tells the parts of a process to stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from shared.model.errors import TransientError

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
