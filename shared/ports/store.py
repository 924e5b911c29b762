"""What the core needs of a store, and may rely on from every adapter."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.model.promises import Promise
from shared.model.words import Commit, Receipt, Receipts, Total
from shared.ports.books import Books


class Snapshot(Protocol):
    """The store at one instant."""

    time: int
    """The store's time of it: larger is later. Comparable with what `Store.apply` returns, and with floors."""
    as_of: float
    """The same instant in seconds since 1970, for people."""
    now: int
    """The same instant as `Store.now` tells it, or later."""
    exact: bool
    """Whether it is of just that instant. Otherwise it may hold more, so that readings are exact only at rest."""

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        """Totals of all the counters, with what dead receipts say of them; and which receipts are settled
        (`Receipt.settled`), of these keys and of the ids in `Total.dead`: all at this instant.
        """
        ...


class Store(Protocol):
    """Holds shards, configs and receipts."""

    @property
    def parallel(self) -> bool:
        """Whether more shards of a counter take more writes."""
        ...

    async def now(self) -> int:
        """The store's time in ms: it alone decides what has expired or is too old. It is never ahead of time."""
        ...

    async def promises(self) -> Sequence[Promise]:
        """Of all flushers, also those that are gone."""
        ...

    async def promise(self, one: Promise) -> None:
        """Keep it, or raise the `seen` of the one that is there: of equal `reach` and `life`."""
        ...

    async def apply(self, commit: Commit) -> int:
        """Insert all receipts, change those to be revived and add to all shards, or do nothing; the time of the commit.

        Raises `AlreadyAppliedError` if any receipt exists, in whatever state, or one to be revived does not, as `dead`;
        `ChangedError` if a guard has another version than it must have, or a mark another number (either if both do);
        `ShrunkError` if a counter has fewer shards than are `known`, and the shard that was chosen is none of them;
        `ShardFullError` if a shard is too near the end of int64, or may be, as far as the store knows without a look;
        `LateError` if it might be applied after its `until`; `GoneError` if some of its messages are gone;
        `RefusedError` if the store will never take the commit. A config is made or raised with its shard, never
        lowered. What becomes of a receipt that is revived says `Receipt.over`. A dead receipt with a body is found
        by its counters in every later snapshot, until it is applied or dropped; it never expires.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """One instant, not before any `apply` of this object that returned before this was entered. What others have
        applied it may lack for some milliseconds: floors tell.
        """
        ...

    def books(self) -> AbstractAsyncContextManager[Books]:
        """As `snapshot`, of everything; for audits, which may take their time."""
        ...

    async def receipts(self, keys: Collection[str]) -> Receipts:
        """Those of the receipts that exist; the look is not earlier than the call."""
        ...

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        """Dead receipts with a body, in an order of the store; those after that key, at most `limit`, or fewer if they
        are large. None: there are no more.
        """
        ...

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        """`num_shards` of those of the counters that have a config."""
        ...

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        """How much of the source has been added to those of the counters that it was ever added to.

        Neither a set nor a delete changes that.
        """
        ...

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        """Have at least that many shards; the number now. Unless `make`, none where there was no config: 0."""
        ...

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        """Have fewer shards: what the highest hold goes to the others, in one commit with the receipt; how many there
        are now, which is more than that if not all fit into one commit. Nothing is done where there are no more.
        Whoever adds meanwhile is not lost. `ContendedError`: somebody does, and nothing was done. `CrowdedError`: so
        few can't hold it. `AlreadyAppliedError`: the receipt is there, so it was done.
        """
        ...

    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """Counters of more shards than that, a page at a time. One that changes meanwhile may be missed."""
        ...

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since those of the shards that exist were last written, as far as the store knows."""
        ...

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        """Counters that are marked as deleted, in an order of the store; those after that one, at most `limit`."""
        ...

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        """Those of the counters that are marked as deleted."""
        ...

    async def remove(self, counter: str) -> bool:
        """If the counter is marked as deleted, and its shards hold nothing together: delete them and its config, and
        take the mark off, which gives the guard another version, or do nothing. Whether it did. Whoever adds to it
        meanwhile is not lost.
        """
        ...

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """Counters with a config that start with `prefix`, come after `after`, and not after `until`, in the order of
        their UTF-8 bytes: the first `limit` of them. Fewer means that there are no more.
        """
        ...

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """As `names`: counters that dead receipts with a body stand for, and perhaps some of what they stood for."""
        ...

    async def sweep(self, now: int, limit: int) -> int:
        """Delete up to `limit` receipts that expired before `now` and are not needed; how many it deleted. Fewer does
        not mean that none is left. Else than by a server's own deletion, what they say is carried on, see `Config`.
        """
        ...
