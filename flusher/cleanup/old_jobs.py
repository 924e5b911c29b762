"""Deletes jobs that expired, by the store's clock."""

from typing import Final

from shared.ports.commits import StoreClock
from shared.ports.jobs import Jobs

INTERVAL: Final = 60.0
MOST: Final = 500
"""Rows that one step deletes: others write at the same time."""


class JobSweep:
    """Deletes expired jobs in small steps."""

    def __init__(self, jobs: Jobs, store: StoreClock) -> None:
        self._jobs = jobs
        self._store = store

    async def sweep_once(self) -> int:
        """One step. Returns how many rows were deleted."""
        return await self._jobs.sweep(await self._store.now(), MOST)

    async def sweep_all(self) -> None:
        """As many steps as there are rows to delete."""
        while await self.sweep_once():
            pass
