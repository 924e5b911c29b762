"""Notices that the process was suspended for so long that requests it received before may be too old to count."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from shared.model.errors import StoodStillError
from shared.model.receipts import CLIENT_IDS_REMEMBERED, DAY, DAY_SECONDS
from shared.runtime.clock import Clock

LONGEST: Final = (CLIENT_IDS_REMEMBERED - DAY) / 1_000
"""Seconds. A client that got no answer may have sent its increments to another process, with the same ids. While the
ids are remembered, publishing them here, too, is harmless.
"""
LOOK: Final = 60.0
"""Seconds between two looks at the clock."""


def deadline(seconds: float, clock: Clock) -> Callable[[], None]:
    """A check for what must happen within this time from now. Later it raises `StoodStillError`."""
    begun = clock.monotonic()

    def check() -> None:
        late = clock.monotonic() - begun
        if late > seconds:
            raise StoodStillError(
                f"this took {late:.0f} s, possibly because the process was suspended, and may be too old now: send it"
                " again with the same id"
            )

    return check


class StandstillWatch:
    """Ends a process that was suspended for longer than `LONGEST`, before it publishes anything more.

    Nobody knows the age of a request that waited in a socket meanwhile. A new process holds no such requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.monotonic()

    def check(self) -> None:
        """Raise `StoodStillError` if it was. Put no await between this call and what must not happen then."""
        still = self._clock.monotonic() - self._seen
        if still > LONGEST:
            raise StoodStillError(
                f"this process was suspended for {still / DAY_SECONDS:.1f} days, so increments that it held may have"
                " been counted elsewhere: start it again; nothing that was accepted is lost"
            )

    def look(self) -> None:
        """Do the same as `check`, then measure from now on."""
        self.check()
        self._seen = self._clock.monotonic()

    async def watch(self) -> NoReturn:
        """Raise `StoodStillError` as soon as it is known."""
        while True:
            self.look()
            await asyncio.sleep(LOOK)
