"""Gives a counter fewer shards. Each commit leaves a receipt, which tells an audit who wrote."""

from typing import Final

from shared.config.settings import Settings
from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import AlreadyAppliedError, NotAloneError, TransientError
from shared.model.receipts import Tally, key_of_compaction, lifetime, notes_of_commit
from shared.model.words import Receipt
from shared.ports.store import ShardNumbers
from shared.runtime.clock import Clock
from shared.runtime.ids import mint
from shared.runtime.retry import after_conflict

RETRY_FOR: Final = 10.0
"""Seconds for retries while others write to the shards that are to be removed."""


class Compactor:
    """Safe to kill at any point, and safe to run several times at once."""

    def __init__(
        self,
        store: ShardNumbers,
        clock: Clock,
        retention: Millis,
        *,
        alone: bool = True,
    ) -> None:
        """`alone`: no ndb application writes to the same counters."""
        self._store = store
        self._clock = clock
        self._retention = retention
        self._alone = alone

    def check(self) -> None:
        """Raise `NotAloneError` if compaction is not allowed here."""
        if not self._alone:
            raise NotAloneError(
                "an ndb application writes to these counters, too (COUNTERSINK_NDB_WRITERS): it may be about to add to"
                " a shard that would be removed, and that increment would be lost; wait until the application has ended"
            )

    async def compact(self, counter: str, num_shards: int, receipt: Receipt | None = None) -> int:
        """Compact the counter and return its number of shards then, which may be higher if time ran out. `receipt`: key
        and expiry of that of the first commit, so that the caller can find it again.

        Raises `CrowdedError` if so few shards can't hold the value.
        """
        self.check()
        until = self._clock.monotonic() + RETRY_FOR
        backoff = after_conflict()
        while True:
            try:
                number = await self._store.compact(counter, num_shards, await self._receipt(counter, receipt))
            except AlreadyAppliedError:
                receipt = None  # the first was done
            except TransientError:
                if self._clock.monotonic() >= until:
                    raise
                await backoff.wait()
            else:
                if number <= num_shards or self._clock.monotonic() >= until:
                    return number
                receipt = None

    async def _receipt(self, counter: str, receipt: Receipt | None) -> Receipt:
        """A receipt that names the counter with a sum of 0, since a compaction changes no total."""
        identity = mint()
        (note,) = notes_of_commit([""], identity, Tally(), {counter: 0})
        if receipt is None:
            expires = StoreMillis(await self._store.now() + lifetime(self._retention, of_client=False))
            receipt = Receipt(key_of_compaction(identity), expires)
        return receipt._replace(note=note)


def compactor_of(store: ShardNumbers, clock: Clock, settings: Settings) -> Compactor:
    return Compactor(store, clock, Millis(settings.retention * 1_000), alone=settings.ndb_writers == "no")
