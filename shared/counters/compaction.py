"""Brings a counter down to fewer shards. Each commit leaves a receipt, so that an audit knows whose it was."""

from collections.abc import Callable
from typing import Final, NamedTuple

from shared.config.settings import Settings
from shared.model import notes
from shared.model.errors import AlreadyAppliedError, NotAloneError, TransientError
from shared.model.receipts import key_of_compaction, lifetime
from shared.model.words import Receipt, Tally
from shared.ports.shards import ShardNumbers
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock
from shared.runtime.ids import mint

PATIENCE: Final = 10.0
"""Seconds in which it is tried again while others write to the shards that are to go."""


class Stamp(NamedTuple):
    """What the receipt of the first commit is called, so that it can be found, and when it expires (ms)."""

    key: str
    expires: int


class Compactor:
    """It may be killed anywhere, and several may do the same at once."""

    def __init__(
        self,
        store: ShardNumbers,
        clock: Clock,
        retention: int,
        *,
        alone: bool = True,
        backoff: Callable[[], Backoff] = lambda: Backoff(0.01, 0.5),
    ) -> None:
        """`retention` in milliseconds; `alone`: no ndb application writes to the same counters."""
        self._store = store
        self._clock = clock
        self._retention = retention
        self._alone = alone
        self._backoff = backoff

    def check(self) -> None:
        """Raise `NotAloneError` if nothing is compacted here."""
        if not self._alone:
            raise NotAloneError(
                "an ndb application writes here, too (COUNTERSINK_NDB_WRITERS): it might be about to add to a shard"
                " that would go, and nobody would read it; wait until that application has ended"
            )

    async def compact(self, counter: str, num_shards: int, stamp: Stamp | None = None) -> int:
        """How many shards it has then. `CrowdedError` if so few can't hold it."""
        self.check()
        until = self._clock.monotonic() + PATIENCE
        backoff = self._backoff()
        while True:
            try:
                number = await self._store.compact(counter, num_shards, await self._receipt(counter, stamp))
            except AlreadyAppliedError:
                stamp = None  # the first was done
            except TransientError:
                if self._clock.monotonic() >= until:
                    raise
                await backoff.wait()
            else:
                if number <= num_shards or self._clock.monotonic() >= until:
                    return number
                stamp = None

    async def _receipt(self, counter: str, stamp: Stamp | None) -> Receipt:
        """That it was there, and moved nothing in or out."""
        identity = mint()
        (note,) = notes.written([""], identity, Tally(), {counter: 0})
        if stamp is None:
            expires = await self._store.now() + lifetime(self._retention, of_client=False)
            stamp = Stamp(key_of_compaction(identity), expires)
        return Receipt(*stamp, note=note)


def compactor_of(store: ShardNumbers, clock: Clock, settings: Settings) -> Compactor:
    return Compactor(store, clock, settings.retention * 1000, alone=settings.ndb_writers == "no")
