"""Owns what one process knows of the fleet: one look in flight, however many readings ask for it, and its changes."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shared.model.errors import TransientError
from shared.model.fleet import Fleet
from shared.ports.fleet import FleetBook, FleetLook
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

PATIENCE: Final = 2.0
"""Seconds for the store to answer a look."""
CHANGE_PATIENCE: Final = 5.0
"""Seconds for the store to take a change."""
PAUSE: Final = 0.5
"""Seconds after a failed look in which nobody tries again: readings are inexact meanwhile."""
_DRIFT: Final = 0.001
"""Our clock may run faster than the store's, but not by so much."""


class Looks:
    """A question is served by a look that began at most `age` seconds before it, or after it."""

    def __init__(self, book: FleetBook, clock: Clock, age: float) -> None:
        self._book = book
        self._clock = clock
        self._age = age
        self._flight: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        """When the flight began."""
        self._failed = float("-inf")
        """When the last look that failed had begun."""
        self._told = float("-inf")
        """When the last fleet came."""
        self.answered = True
        """Whether the store answered the last look."""
        self._heard = (0, 0.0)
        """The store's clock in the last answer (ms), and when that came."""
        self.last: FleetLook | None = None
        """The latest fleet that was seen."""
        self.at = float("-inf")
        """When the last look that succeeded began: what it shows is of that instant, or later."""

    def fresh(self) -> FleetLook | None:
        """The last look, if it serves a question that is asked now."""
        return self.last if self.at >= self._clock.monotonic() - self._age else None

    async def get(self, age: float | None = None) -> FleetLook | None:
        """The fleet; None if the store does not say."""
        asked = self._clock.monotonic()
        oldest = asked - (self._age if age is None else age)
        while True:
            if self.last is not None and self.at >= oldest:
                return self.last
            if self._failed >= asked - PAUSE:
                return None
            if self._flight is None:
                self._begun = self._clock.monotonic()
                self._flight = asyncio.create_task(self._fly(self._begun), name="look at the fleet")
            await asyncio.shield(self._flight)

    async def change(self, step: Callable[[Fleet, int], Fleet | None]) -> FleetLook:
        """As `FleetBook.change`, within some seconds."""
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(CHANGE_PATIENCE):
                look = await self._book.change(step)
        except TimeoutError as error:
            raise TransientError("the store does not answer in time") from error
        self._hear(look, begun)
        return look

    def now(self) -> int:
        """The store's clock shows this or more (ms); 0 if it was never heard."""
        time, at = self._heard
        return time + int((self._clock.monotonic() - at) * (1 - _DRIFT) * 1000) if time else 0

    def _hear(self, look: FleetLook, begun: float) -> None:
        if look.now >= self.now():
            self._heard = look.now, self._clock.monotonic()
        # What was asked for after the last answer had come is newer, though the entity was deleted meanwhile.
        if self.last is None or look.fleet.version >= self.last.fleet.version or begun > self._told:
            self.last, self.at, self._told = look, max(begun, self.at), self._clock.monotonic()

    async def _fly(self, begun: float) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                look = await self._book.look()
        except (TransientError, TimeoutError) as error:
            said = "the store does not say who is in the fleet, reads are not exact: %s"
            _log.log(logging.WARNING if self.answered else logging.DEBUG, said, str(error) or "no answer in time")
            self.answered, self._failed = False, begun
        else:
            self.answered = True
            self._hear(look, begun)
        finally:
            self._flight = None

    async def close(self) -> None:
        """End the look under way."""
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.gather(self._flight, return_exceptions=True)
