"""Tasks that must not die unnoticed, and the word to stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from shared.model.errors import TransientError

_log = logging.getLogger(__name__)

Stop = asyncio.Event
"""Set once, when the process shall end."""


async def forever(step: Callable[[], Awaitable[object]], interval: float) -> None:
    """Take the step every `interval` seconds. One that may work later is tried then; any other error ends it."""
    while True:
        await asyncio.sleep(interval)
        try:
            await step()
        except TransientError as error:
            _log.warning("%s failed and is tried again: %s", getattr(step, "__name__", step), error)
