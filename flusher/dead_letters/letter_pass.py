"""Goes once through all dead letters: the broker's, then those that only the store has. Commands and requests do."""

from collections.abc import Mapping, Sequence
from typing import Final

from flusher.dead_letters.drop import drop
from flusher.dead_letters.open_letter import OpenedLetter, open_letter, open_receipt
from shared.model.promises import Promise
from shared.model.words import Receipt
from shared.ports.broker import DeadLetters
from shared.ports.overlay import Overlay
from shared.ports.store import Store

AT_ONCE: Final = 500
MOST_BYTES: Final = 1_000_000
"""Letters that one step replays."""


class LetterPass:
    """One pass. The caller closes `letters`."""

    def __init__(self, letters: DeadLetters, store: Store, overlay: Overlay, topic: str, promise: Promise) -> None:
        self.letters = letters
        self._store = store
        self._overlay = overlay
        self._topic = topic
        self._promise = promise
        self._seen: set[str] = set()
        """Receipt keys of the letters that were handed out."""
        self._letters_over = False
        self._after = ""
        """The key of the last dead receipt that was read from the store."""

    async def pull(self, limit: int = AT_ONCE) -> list[OpenedLetter]:
        """The broker's letters; then dead receipts whose letters are no longer there, or are held by others."""
        if not self._letters_over:
            opened = [open_letter(one, self._topic) for one in await self.letters.pull(limit, MOST_BYTES)]
            self._seen.update(envelope.key for one in opened for envelope in one.envelopes)
            if opened:
                return opened
            self._letters_over = True
        return await self._kept(limit)

    async def _kept(self, limit: int) -> list[OpenedLetter]:
        while page := await self._store.dead(self._after, limit):
            self._after = page[-1].key
            if opened := [open_receipt(one) for one in page if one.key not in self._seen]:
                return opened
        return []

    async def receipts(self, opened: Sequence[OpenedLetter]) -> Mapping[str, Receipt]:
        keys = [*dict.fromkeys(key for one in opened for key in one.receipt_keys())]
        return (await self._store.receipts(keys)).found if keys else {}

    async def drop(self, one: OpenedLetter) -> Mapping[str, Receipt]:
        """The receipts that it had. One commit drops all of it, and readings leave it out when this returns. The letter
        goes last: cut off before that, it can be dropped again.
        """
        receipts = await drop(self._store, self._overlay, one.envelopes, self._promise)
        if one.letter.delivery.token:
            await self.letters.ack([one.letter.delivery.token], receipts.time)
        return receipts.found
