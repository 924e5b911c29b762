"""Removes what deleted counters leave behind, and jobs that expired. Expired receipts are swept by `flusher.py`."""

import asyncio
from typing import Final, NamedTuple

from shared.ports.overlay import Overlay
from shared.ports.store import Cleanup, Jobs, StoreClock
from shared.runtime.clock import Clock

INTERVAL: Final = 60.0
ROWS_A_STEP: Final = 500
"""Rows that one step deletes: others write at the same time."""


async def sweep_jobs(jobs: Jobs, store: StoreClock) -> None:
    """Take as many steps as there are rows to delete."""
    while await jobs.sweep(await store.now(), ROWS_A_STEP):
        pass


# Removes leftovers of deleted counters once all increments that were under way have arrived.


PAGE: Final = 500
FIRST: Final = 10.0
"""Seconds until a counter that is not empty yet is looked at again; doubled each time."""
LONGEST: Final = 3_600.0
MOST_WAITS_KEPT: Final = 100_000
"""Counters that are remembered. The others are looked at in every round."""
MOST_IN_VAIN: Final = 1_000
"""Counters in one step that could not be removed; the next step continues behind them."""


class _Wait(NamedTuple):
    until: float
    length: float
    round: int
    """The last round that found it marked."""


class CounterRemover:
    """Visits counters that are marked as deleted. One that was counted again keeps its mark and is visited rarely."""

    def __init__(self, store: Cleanup, overlay: Overlay, clock: Clock, grace: float = 0.0) -> None:
        """`grace`: seconds for which a counter that was deleted stays listed. A delete job that is killed in a page
        visits it again when its lease has ended, and has to find there what it deleted.
        """
        self._store = store
        self._overlay = overlay
        self._clock = clock
        self._grace = grace
        self._waits: dict[str, _Wait] = {}
        self._round = 0
        self._after = ""
        """The next step continues behind this counter, even if it failed."""

    async def remove_once(self) -> int:
        """Continue the round as far as possible. Returns how many were removed."""
        removed = in_vain = 0
        while page := await self._store.deleted(self._after, PAGE):
            pending = await self._overlay.view(page)
            for counter in page:
                self._after = counter
                if not self._due(counter):
                    continue
                # Increments that the delete found pending may sum to 0. Without its mark the counter would exist again.
                if not pending[counter].entries and await self._store.remove(counter):
                    removed += 1
                    continue
                self._put_off(counter)
                in_vain += 1
                if in_vain == MOST_IN_VAIN:
                    return removed
            await asyncio.sleep(0)  # a file answers at once, so give others a turn
        self._waits = {counter: wait for counter, wait in self._waits.items() if wait.round == self._round}
        self._round += 1
        self._after = ""
        return removed

    def _due(self, counter: str) -> bool:
        wait = self._waits.get(counter)
        now = self._clock.monotonic()
        if wait is None and self._grace and len(self._waits) < MOST_WAITS_KEPT:
            wait = _Wait(now + self._grace, FIRST / 2, self._round)
        if wait is None or wait.until <= now:
            return True
        self._waits[counter] = wait._replace(round=self._round)
        return False

    def _put_off(self, counter: str) -> None:
        wait = self._waits.get(counter)
        if wait is None and len(self._waits) >= MOST_WAITS_KEPT:
            return
        length = FIRST if wait is None else min(2 * wait.length, LONGEST)
        self._waits[counter] = _Wait(self._clock.monotonic() + length, length, self._round)
