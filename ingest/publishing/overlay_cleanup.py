"""Removes overlay entries of counters that nobody reads, once their receipts say applied, dead or dropped."""

from typing import Final

from shared.ports.commits import AppliedEnvelopes, ReceiptBook
from shared.ports.overlay import Overlay

MOST: Final = 1_000
"""Receipts that are looked up at once."""
INTERVAL: Final = 2.0
"""Seconds between two rounds."""


class OverlayCleanup:
    """Follows the rule of snapshots: the floor rises to the time of the look-up before entries are removed.

    Envelopes that are due for the first time are asked for together, where the store can do that. Nearly all of them
    are applied. The others are looked up one by one when they are due again.
    """

    def __init__(self, store: ReceiptBook, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    async def settle_once(self) -> None:
        """Settle all entries that are due. With `memory://` nobody else removes what other processes have applied."""
        while True:
            due = await self._overlay.unsettled(MOST)
            ids = sorted(filter(None, due.values()))
            keys = [*due]
            if len(ids) > 1 and isinstance(self._store, AppliedEnvelopes):
                time, applied = await self._store.applied(ids[0], ids[-1], MOST)
                await self._overlay.settle(due.keys() & applied, time)
                keys = [key for key in due if not due[key]]
            if keys:
                time, found = await self._store.receipts(keys)
                settled = [key for key, receipt in found.items() if receipt.settled]
                await self._overlay.settle(settled, time)
            if len(due) < MOST:
                return
