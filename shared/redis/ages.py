"""Tells how old an overlay entry may be, from what this process knows about the promises of flushers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from shared.fleet.fleet_view import FleetView
from shared.model.errors import TransientError
from shared.model.promises import Ages, Promise, ages
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

BELIEVED: Final = 600.0
"""Seconds after which the store is asked again."""
AGAIN: Final = 5.0
"""Seconds between two tries while the store does not answer."""
PATIENCE: Final = 2.0
"""Seconds for the store to answer."""
KNOWN: Final = 3_600.0
"""Seconds for which promises are known after they were read."""

Ask = Callable[[], Awaitable[Collection[Promise]]]


class KnownPromises:
    """The promises, up to an hour old. `shared.model.promises.ages` allows for that."""

    def __init__(self, ask: Ask, looks: FleetView, clock: Clock) -> None:
        """`ask` is `Store.promises`. `looks` tell the store's time."""
        self._ask = ask
        self._looks = looks
        self._clock = clock
        self._promises: Collection[Promise] = ()
        self._read = self._due = float("-inf")
        self._up = True

    async def refresh(self) -> None:
        """Ask the store, if it is time to. If it does not answer, it returns after some seconds and raises nothing."""
        begun = self._clock.monotonic()
        if begun < self._due:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                self._promises = await self._ask()
        except (TransientError, TimeoutError) as error:
            said = "can't read from the store how long receipts live; after an hour of that, reads are not exact: %s"
            _log.log(logging.WARNING if self._up else logging.DEBUG, said, str(error) or "no answer in time")
            self._up, self._due = False, begun + AGAIN
        else:
            self._up, self._read, self._due = True, begun, begun + BELIEVED

    def ages(self) -> Ages | None:
        """The ages as of now. None if the promises are unknown: then nothing may be forgotten, and nothing is exact."""
        now = self._looks.now()
        if not now or self._clock.monotonic() - self._read > KNOWN:
            return None
        return ages(self._promises, now)
