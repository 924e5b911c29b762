"""Finds out whether envelopes are pending, applied or dead-lettered."""

import asyncio
from collections.abc import Sequence
from typing import Final

from shared.model.receipts import key_of_envelope
from shared.model.words import APPLIED, DEAD, DROPPED
from shared.ports.commits import ReceiptBook
from shared.ports.overlay import Overlay
from shared.runtime.clock import Clock

POLL: Final = 0.03
"""Seconds between two looks."""


class Tracking:
    """Asks the overlay before the store. Envelopes move from the first to the second, so none is missed in both."""

    def __init__(self, store: ReceiptBook, overlay: Overlay, clock: Clock) -> None:
        self._store = store
        self._overlay = overlay
        self._clock = clock

    async def state(self, envelope_ids: Sequence[str]) -> str:
        """The state of all envelopes together: `applied` only if all are applied."""
        keys = [key_of_envelope(envelope_id) for envelope_id in envelope_ids]
        held = await self._overlay.holds(keys)
        found = (await self._store.receipts(keys)).found
        states = {found[key].state if key in found else "pending" if key in held else "unknown" for key in keys}
        if states & {DEAD, DROPPED}:
            return "dead-lettered"
        for state in ("unknown", "pending"):
            if state in states:
                return state
        return "applied"

    async def applied(self, envelope_ids: Sequence[str], timeout: float) -> bool:
        """Wait until all envelopes are applied. False if that takes longer than `timeout` seconds or can't happen."""
        keys = [key_of_envelope(envelope_id) for envelope_id in envelope_ids]
        until = self._clock.monotonic() + timeout
        while True:
            if not await self._overlay.holds(keys):
                found = (await self._store.receipts(keys)).found
                if len(found) == len(keys):
                    return all(receipt.state == APPLIED for receipt in found.values())
            if self._clock.monotonic() >= until:
                return False
            await asyncio.sleep(POLL)
