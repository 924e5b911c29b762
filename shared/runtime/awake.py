"""Owns whether this process has stood still for so long that what reached it before may be too old to be counted."""

import asyncio
from typing import Final, NoReturn

from shared.model.errors import StoodStillError
from shared.model.receipts import CLIENT_IDS_REMEMBERED, DAY, DAY_SECONDS
from shared.runtime.clock import Clock

LONGEST: Final = (CLIENT_IDS_REMEMBERED - DAY) / 1_000
"""Seconds. A client that got no answer may have sent its increments elsewhere, under the same ids. While those are
remembered, it does no harm to publish them here, too.
"""
LOOK: Final = 60.0
"""Seconds."""


class Awake:
    """Nobody knows how old a request is that waited in a socket while the process was stopped. So a process that stood
    still for longer than `LONGEST` publishes nothing any more, and ends: a new one has empty hands.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.monotonic()

    def check(self) -> None:
        """Raise `StoodStillError` if it did. Call it in the same step as what must not happen then."""
        still = self._clock.monotonic() - self._seen
        if still > LONGEST:
            raise StoodStillError(
                f"this process stood still for {still / DAY_SECONDS:.1f} days, so what it had received may have been"
                " counted elsewhere: start it again; nothing that was accepted is lost"
            )

    def look(self) -> None:
        """As `check`, and begin to count anew."""
        self.check()
        self._seen = self._clock.monotonic()

    async def watch(self) -> NoReturn:
        """Raise `StoodStillError` as soon as it is known."""
        while True:
            self.look()
            await asyncio.sleep(LOOK)
