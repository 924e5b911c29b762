"""Looks at the fleet for one process. One look at a time is in flight and serves all readings that wait."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from shared.model.buckets import NEVER, StoreMillis
from shared.model.errors import TransientError
from shared.model.fleet import LONGEST_LOOK, LOOK_MARGIN, NONE, Fleet
from shared.ports.store import FleetBook, FleetLook, Left
from shared.runtime.clock import Clock
from shared.runtime.retry import ended

_log = logging.getLogger(__name__)

LOOK_WITHIN: Final = 2.0
"""Seconds for the store to answer a look."""
CHANGE_WITHIN: Final = 5.0
"""Seconds for the store to take a change."""
PAUSE: Final = 0.5
"""Seconds without a new look after one has failed. Readings are inexact meanwhile."""
_DRIFT: Final = 0.001
"""By how much our clock may run faster than the store's, as a fraction, at most."""


class FleetView:
    """Looks at the fleet. A question is answered by a look that began after it, or at most `age` seconds before it."""

    def __init__(self, book: FleetBook, clock: Clock, age: float) -> None:
        self._book = book
        self._clock = clock
        self._age = age
        self._flight: asyncio.Task[None] | None = None
        self._begun = float("-inf")
        """When the flight began."""
        self._failed = float("-inf")
        """When the last failed look began."""
        self._told = float("-inf")
        """When `last` was received."""
        self.answered = True
        """Whether the store answered the last look."""
        self._heard = (NEVER, 0.0)
        """The store's clock in the last answer, and when that came."""
        self.last: FleetLook | None = None
        """The latest fleet that was seen."""
        self.at = float("-inf")
        """When the last successful look began. It shows the fleet at that instant, or later."""
        self._named_at = float("-inf")
        """When this process first saw the overlay that is named now."""

    def fresh(self) -> FleetLook | None:
        """The last look, if it answers a question that is asked now."""
        return self.last if self.at >= self._clock.monotonic() - self._age else None

    async def get(self, age: float | None = None) -> FleetLook | None:
        """A look at most `age` seconds old, by default the `age` of this object. None if the store does not answer."""
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

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        """Like `FleetBook.change`. Raises `TransientError` if the store does not answer within a few seconds."""
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(CHANGE_WITHIN):
                look = await self._book.change(step, left)
        except TimeoutError as error:
            raise TransientError("the store does not answer in time") from error
        self._hear(look, begun)
        return look

    async def left_by(self, member: str) -> Collection[str] | None:
        """Like `FleetBook.left_by`. Raises `TransientError` if the store does not answer within a few seconds."""
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                return await self._book.left_by(member)
        except TimeoutError as error:
            raise TransientError("the store does not answer in time") from error

    def young(self) -> float:
        """Seconds until no reading can use a look from before the present overlay was named. Until then no reading is
        exact and no change is answered, since those readings do not see what happens here. 0 if there was none before.
        """
        if self.last is None or self.last.fleet.overlay.epoch <= 1:
            return 0.0
        return max(0.0, self._named_at + LONGEST_LOOK + LOOK_MARGIN - self._clock.monotonic())

    def now(self) -> StoreMillis:
        """A lower bound of the store's clock; `NEVER` before the store has answered."""
        time, at = self._heard
        return StoreMillis(time + int((self._clock.monotonic() - at) * (1 - _DRIFT) * 1000)) if time else NEVER

    def _hear(self, look: FleetLook, begun: float) -> None:
        if look.now >= self.now():
            self._heard = look.now, self._clock.monotonic()
        # An answer with a lower version is newer, too, if the question came after the last answer: the entity was
        # deleted meanwhile.
        if self.last is None or look.fleet.version >= self.last.fleet.version or begun > self._told:
            before = NONE if self.last is None else self.last.fleet.overlay
            self.last, self.at, self._told = look, max(begun, self.at), self._clock.monotonic()
            if look.fleet.overlay != before:
                self._named_at = self._told

    async def _fly(self, begun: float) -> None:
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                look = await self._book.look()
        except (TransientError, TimeoutError) as error:
            said = "can't read the list of processes from the store; reads are not exact until that works: %s"
            _log.log(logging.WARNING if self.answered else logging.DEBUG, said, str(error) or "no answer in time")
            self.answered, self._failed = False, begun
        else:
            self.answered = True
            self._hear(look, begun)
        finally:
            self._flight = None

    async def close(self) -> None:
        await ended(self._flight)
