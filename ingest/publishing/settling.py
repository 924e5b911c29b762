"""Settles what nobody reads: removes overlay entries whose receipts say that they are applied, dead or dropped."""

from typing import Final

from shared.ports.commits import ReceiptBook
from shared.ports.overlay import Overlay

MOST: Final = 1_000
"""Receipts of one look."""
INTERVAL: Final = 2.0


class Settling:
    """The same rule as for a snapshot: the floor rises to the time of the look before entries go."""

    def __init__(self, store: ReceiptBook, overlay: Overlay) -> None:
        self._store = store
        self._overlay = overlay

    async def settle_once(self) -> None:
        """All that is due, some at a time: with `memory://` nobody else settles what others have applied."""
        while True:
            keys = await self._overlay.unsettled(MOST)
            if keys:
                time, found = await self._store.receipts(keys)
                settled = [key for key, receipt in found.items() if receipt.settled]
                await self._overlay.settle(settled, time)
            if len(keys) < MOST:
                return
