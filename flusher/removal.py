"""Owns when what is left of deleted counters goes: once all that was under way when they were deleted has come."""

from typing import Final

from shared.clock import Clock
from shared.ports import Store

PAGE: Final = 500
FIRST: Final = 10.0
"""Seconds until one that still holds something is looked at again; then twice as many."""
LONGEST: Final = 3_600.0
MOST: Final = 100_000
"""Remembered. Beyond it all are looked at again."""


class Removal:
    """One that is counted on again keeps its mark, and is looked at now and then."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._later: dict[str, tuple[float, float]] = {}
        """When, and after how long a wait."""

    async def remove_once(self) -> int:
        """All that is due; how many went."""
        removed, after = 0, ""
        if len(self._later) > MOST:
            self._later.clear()
        marked: set[str] = set()
        while page := await self._store.deleted(after, PAGE):
            after = page[-1]
            marked.update(page)
            removed += sum([await self._remove(counter) for counter in page])
        self._later = {counter: when for counter, when in self._later.items() if counter in marked}
        return removed

    async def _remove(self, counter: str) -> bool:
        now = self._clock.monotonic()
        due, wait = self._later.get(counter, (now, FIRST / 2))
        if now < due:
            return False
        removed = await self._store.remove(counter)
        if not removed:
            wait = min(2 * wait, LONGEST)
            self._later[counter] = (now + wait, wait)
        return removed
