"""All roles of a store together. One adapter fills them; who uses a store names the narrowest role that it needs."""

from collections.abc import Sequence
from typing import Protocol

from shared.model.times import StoreMillis
from shared.ports.audit_data import Accounts
from shared.ports.commits import Commits, StoreClock
from shared.ports.readings import CounterNames, Periods
from shared.ports.shards import ShardNumbers


class Cleanup(StoreClock, Protocol):
    """Deletes what nobody needs any more."""

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        """A page of counters that are marked as deleted, in an order of the store, behind `after`."""
        ...

    async def remove(self, counter: str) -> bool:
        """Delete the shards and the config of a counter that is marked as deleted, and take its mark off, which gives
        the guard another version. Returns whether it did.

        Nothing happens unless the counter is marked and its shards sum to zero. Concurrent adds are not lost.
        """
        ...

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        """Delete up to `limit` receipts that expired before `now` and are not needed; returns how many.

        A number below `limit` does not mean that none is left. The numbers of deleted receipts are added to
        `Config.carried`, unless the server's own expiry deleted them.
        """
        ...


class Store(Commits, Periods, CounterNames, ShardNumbers, Accounts, Cleanup, Protocol):
    """Holds shards, configs and receipts."""
