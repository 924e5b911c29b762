"""Removes overlay entries of counters that nobody reads, once their receipts say applied, dead or dropped."""

from typing import Final

from shared.ports.commits import ReceiptBook
from shared.ports.overlay import Overlay

MOST: Final = 1_000
"""Receipts that are looked up at once."""
INTERVAL: Final = 2.0
"""Seconds between two rounds."""


class OverlayCleanup:
    """Follows the rule of snapshots: the floor rises to the time of the look-up before entries are removed."""

    def __init__(self, store: ReceiptBook, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    async def settle_once(self) -> None:
        """Settle all entries that are due. With `memory://` nobody else removes what other processes have applied."""
        while True:
            keys = await self._overlay.unsettled(MOST)
            if keys:
                time, found = await self._store.receipts(keys)
                settled = [key for key, receipt in found.items() if receipt.settled]
                await self._overlay.settle(settled, time)
            if len(keys) < MOST:
                return
