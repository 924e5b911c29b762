"""The roles of a store that writes depend on: its clock, receipts, promises and commits."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from shared.model.promises import Promise
from shared.model.times import Instant, StoreMillis
from shared.model.words import Commit, Receipt, Receipts


class StoreClock(Protocol):
    """The only clock that decides what has expired or is too old."""

    async def now(self) -> StoreMillis:
        """The store's time. It is never ahead of real time."""
        ...


class ReceiptBook(Protocol):
    """Finds receipts."""

    async def receipts(self, keys: Collection[str]) -> Receipts:
        """The receipts that exist among these keys. The store is read after the call began."""
        ...

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        """A page of dead receipts that have a body, in an order of the store.

        The page starts behind the key `after` and has at most `limit` receipts, or fewer if they are large. An empty
        page means that there are no more.
        """
        ...


@runtime_checkable
class AppliedEnvelopes(Protocol):
    """Finds out which envelopes of an ingest are applied, with less work than reading the receipt of each."""

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        """The keys of receipts whose `envelope` is between these ids. It may leave some out. None of them was
        committed after the instant.
        """
        ...


class PromiseBook(StoreClock, Protocol):
    """Keeps how long flushers promised that their receipts live."""

    async def promises(self) -> Sequence[Promise]:
        """The promises of all flushers, including those that have ended."""
        ...

    async def promise(self, one: Promise) -> None:
        """Keep it. If one of the same `reach` and `life` is there, raise its `seen` instead."""
        ...


class Commits(PromiseBook, ReceiptBook, Protocol):
    """Applies commits: all of one, or nothing."""

    async def apply(self, commit: Commit) -> Instant:
        """Insert all receipts, change those to be revived and add to all shards, or do nothing. Returns the instant
        of the commit.

        A config is made or raised together with its shard, and never lowered. `Receipt.over` says what becomes of a
        receipt that is revived. Every later snapshot finds a dead receipt with a body by its counters, until it is
        applied or dropped; such a receipt never expires.

        Raises:
        `AlreadyAppliedError` if a receipt exists, in any state, or if one to be revived does not exist as `dead`;
        `ChangedError` if a guard version or an import mark differs from the expected one (either, if both do), or the
        epoch does;
        `ShrunkError` if a counter has fewer shards than `known`, and the chosen shard is not one of them;
        `ShardFullError` if a shard is too near the end of int64, or may be, as far as the store knows without reading;
        `LateError` if it might be applied after its `until`;
        `GoneError` if some of its messages are gone;
        `RefusedError` if the store will never accept the commit.
        """
        ...

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        """How much of an import's source has been added to each counter; counters without a mark are left out.

        A set or a delete does not change a mark.
        """
        ...
