"""Brings a counter down to fewer shards. Each commit leaves a receipt, so that an audit knows whose it was."""

from collections.abc import Callable
from typing import Final

from shared import notes
from shared.backoff import Backoff
from shared.clock import Clock
from shared.errors import TransientError
from shared.ids import mint
from shared.ports import Store
from shared.receipts import key_of_compaction, lifetime
from shared.words import Receipt, Tally

PATIENCE: Final = 10.0
"""Seconds in which it is tried again while others write to the shards that are to go."""


class Compactor:
    """It may be killed anywhere, and several may do the same at once."""

    def __init__(
        self, store: Store, clock: Clock, retention: int, backoff: Callable[[], Backoff] = lambda: Backoff(0.01, 0.5)
    ) -> None:
        """`retention` in milliseconds."""
        self._store = store
        self._clock = clock
        self._retention = retention
        self._backoff = backoff

    async def compact(self, counter: str, num_shards: int) -> int:
        """How many shards it has then. `CrowdedError` if so few can't hold it."""
        until = self._clock.monotonic() + PATIENCE
        backoff = self._backoff()
        while True:
            try:
                number = await self._store.compact(counter, num_shards, self._receipt(counter))
            except TransientError:
                if self._clock.monotonic() >= until:
                    raise
                await backoff.wait()
            else:
                if number <= num_shards or self._clock.monotonic() >= until:
                    return number

    def _receipt(self, counter: str) -> Receipt:
        """That it was there, and moved nothing in or out."""
        identity = mint()
        (note,) = notes.written([""], identity, Tally(), {counter: 0})
        expires = int(self._clock.now() * 1000) + lifetime(self._retention, of_client=False)
        return Receipt(key_of_compaction(identity), expires, note=note)
