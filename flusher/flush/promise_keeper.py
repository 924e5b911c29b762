"""Knows the promises in the store, and renews this flusher's own before receipts are written."""

from typing import Final

from shared.model.errors import ContendedError
from shared.model.promises import Promise, Promises
from shared.model.times import StoreMillis
from shared.ports.commits import PromiseBook
from shared.runtime.clock import Clock

BELIEVED: Final = 60.0
"""Seconds after which the promises are read again: a flusher with other settings may have started."""


class PromiseKeeper:
    """Tells how long receipts live, and until when envelopes may be applied."""

    def __init__(self, store: PromiseBook, clock: Clock, ours: Promise) -> None:
        self._store = store
        self._clock = clock
        self._promises = Promises(ours)
        self._read = float("-inf")

    async def promises(self) -> Promises:
        """The promises, at most a minute old."""
        now = self._clock.monotonic()
        if now - self._read > BELIEVED:
            self._promises = Promises(self._promises.ours, await self._store.promises())
            self._read = now
        return self._promises

    async def renew(self) -> None:
        """Renew our promise. Call it before receipts are written; after a `TransientError` none may be."""
        promises = await self.promises()
        mine = promises.renew(await self._store.now())
        if mine is None:
            return
        try:
            await self._store.promise(mine)
        except ContendedError:  # another flusher has just written, perhaps the same
            self._read = float("-inf")
            raise
        self._promises = Promises(promises.ours, await self._store.promises())

    def expires(self, made: StoreMillis, *, of_client: bool) -> StoreMillis:
        return self._promises.expires(made, of_client=of_client)
