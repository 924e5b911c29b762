"""The roles of a store that readings and lists depend on: snapshots, and names of counters."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.model.buckets import Counts
from shared.model.times import Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.words import Total


class Snapshot(Protocol):
    """The store at one instant."""

    time: Instant
    """Comparable with what `Commits.apply` returns, and with floors."""
    as_of: WallSeconds
    """The instant as a wall clock shows it, for people."""
    now: StoreMillis
    """The instant as `StoreClock.now` tells it, or later."""

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        """The totals of all these counters, including what dead receipts say of them; and which receipts are settled
        (`Receipt.settled`) among these keys and the ids in `Total.dead`. All of it at this instant.
        """
        ...

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        """What was applied, of the buckets that begin in this range, at this instant. A commit adds to buckets and
        shards together. Buckets to which nothing was added may be missing.
        """
        ...


class Snapshots(Protocol):
    """Opens snapshots."""

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """One instant, no earlier than any `apply` of this object that had returned when the block began.

        For some milliseconds it may lack what other processes have applied: floors tell when it does.
        """
        ...


class Periods(Snapshots, Protocol):
    """Also closes periods of counts by time, so that what is read of them is final."""

    async def close_periods(self, until: WallMillis) -> None:
        """When this returns, no commit adds to a bucket that ended by `until`, which must not be in the future. What it
        would add there counts as of `until` instead. Snapshots that are opened from then on tell (`Counts.closed`).
        """
        ...


class CounterNames(Protocol):
    """Lists counters, and tells how many there are."""

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """A page of counters that have a config, in the order of their UTF-8 bytes.

        They start with `prefix`, come behind `after`, and not behind `until`. Fewer than `limit` means that there are
        no more.
        """
        ...

    async def count(self, prefix: str, most: int) -> int:
        """The number of counters that have a config and start with `prefix`; `most` if there are more.

        Counters that other processes make or remove meanwhile may be missing or included. Other tasks have a turn
        while it counts.
        """
        ...

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Like `names`, for counters in dead receipts that have a body. Some may have left their dead receipt since."""
        ...

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        """Those of the counters that are marked as deleted."""
        ...
