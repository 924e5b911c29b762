"""Repeats background steps, and tells the parts of a process to stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shared.model.errors import TransientError

_log = logging.getLogger(__name__)

Stop = asyncio.Event
"""Set once, when the process is to end."""


async def forever(step: Callable[[], Awaitable[object]], interval: float) -> None:
    """Take the step every `interval` seconds. A `TransientError` is logged, and any other error ends the loop."""
    while True:
        await asyncio.sleep(interval)
        try:
            await step()
        except TransientError as error:
            _log.warning("%s failed and is tried again: %s", getattr(step, "__name__", step), error)
