"""The overlay of a process, for tests in which all publish through it."""

from collections.abc import Collection

from shared.counters.pending import Pending
from shared.memory import MOST_ENTRIES, ProcessOverlay
from shared.model.words import Envelope
from shared.runtime.clock import Clock


class ExactOverlay(ProcessOverlay):
    """It sees everything, so its views are exact."""

    shared = True

    def __init__(self, clock: Clock, most_entries: int = MOST_ENTRIES) -> None:
        super().__init__(clock, most_entries)
        self._pending = Pending(exact=True)

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        """Make an entry that adds nothing, and is not confirmed."""
        sums = dict.fromkeys(counters, 0)
        self._add(Envelope("", sums, receipt=receipt, increments=0, foreign=True), confirmed=False)
        return None
