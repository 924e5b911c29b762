"""Owns what one process knows of flushers' promises, by which it judges how old an entry of the overlay may be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from shared.fleet.looks import Looks
from shared.model.errors import TransientError
from shared.model.promises import Ages, Promise, ages
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

BELIEVED: Final = 600.0
"""Seconds after which the store is asked again."""
AGAIN: Final = 5.0
"""Seconds after which it is asked again if it did not answer."""
PATIENCE: Final = 2.0
"""Seconds for the store to answer."""
KNOWN: Final = 3_600.0
"""Seconds after which promises that could not be read again are unknown."""

Ask = Callable[[], Awaitable[Collection[Promise]]]


class KnownPromises:
    """Up to an hour old, which `shared.model.promises.ages` allows for."""

    def __init__(self, ask: Ask, looks: Looks, clock: Clock) -> None:
        """`ask`: `Store.promises`. `looks` tell the store's time."""
        self._ask = ask
        self._looks = looks
        self._clock = clock
        self._promises: Collection[Promise] = ()
        self._read = self._due = float("-inf")
        self._up = True

    async def refresh(self) -> None:
        """Ask the store if it is time to. Returns after some seconds, and raises nothing, if it does not answer."""
        begun = self._clock.monotonic()
        if begun < self._due:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                self._promises = await self._ask()
        except (TransientError, TimeoutError) as error:
            said = "the store does not say what flushers promise; after an hour reads are not exact: %s"
            _log.log(logging.WARNING if self._up else logging.DEBUG, said, str(error) or "no answer in time")
            self._up, self._due = False, begun + AGAIN
        else:
            self._up, self._read, self._due = True, begun, begun + BELIEVED

    def ages(self) -> Ages | None:
        """As of now; None if they are unknown: then nothing may be forgotten, and nothing is exact."""
        now = self._looks.now()
        if not now or self._clock.monotonic() - self._read > KNOWN:
            return None
        return ages(self._promises, now)
