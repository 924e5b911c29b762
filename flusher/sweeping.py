"""Owns when jobs that were done long ago are forgotten: as receipts, by a clock that is not believed at once."""

from typing import Final

from flusher.horizon import Horizon
from shared.clock import Clock
from shared.job_ports import Jobs

INTERVAL: Final = 60.0
MOST: Final = 500
"""Rows of one step, since others write, too."""


class JobSweep:
    """Some at a time."""

    def __init__(self, jobs: Jobs, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._horizon = Horizon()

    async def sweep_once(self) -> int:
        """How many rows went."""
        until = self._horizon.until(self._clock.now(), self._clock.monotonic())
        return 0 if until is None else await self._jobs.sweep(int(until * 1000), MOST)
