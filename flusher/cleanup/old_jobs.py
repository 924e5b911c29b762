"""Owns when jobs that were done long ago are forgotten: as receipts, by the store's time."""

from typing import Final

from shared.ports.commits import StoreClock
from shared.ports.jobs import Jobs

INTERVAL: Final = 60.0
MOST: Final = 500
"""Rows of one step, since others write, too."""


class JobSweep:
    """Some at a time."""

    def __init__(self, jobs: Jobs, store: StoreClock) -> None:
        self._jobs = jobs
        self._store = store

    async def sweep_once(self) -> int:
        """How many rows went."""
        return await self._jobs.sweep(await self._store.now(), MOST)
