"""What the core may rely on from every overlay."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.model.buckets import Instant
from shared.model.words import Envelope, View


class Overlay(Protocol):
    """Accepted envelopes that are not known to be applied: entries and a floor per counter."""

    @property
    def shared(self) -> bool:
        """Whether it is meant to have the entries of all processes. If not, no view is exact."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether it holds so much that flushers should not take their time."""
        ...

    @property
    def kept_by_broker(self) -> bool:
        """Whether an entry goes with the broker's message, so that none is ever left to settle."""
        ...

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        """The entries and the floor of each counter, all at one instant within the call."""
        ...

    async def names(
        self, prefix: str, after: str = "", limit: int | None = None, *, exact: bool = False
    ) -> Sequence[str]:
        """Counters that have an entry, start with the prefix and come behind `after`, in the order of their UTF-8
        bytes: at most `limit`. Fewer mean that there are no more. It lets other tasks have a turn if there are many.

        If it may lack entries of other processes it returns what it has, or with `exact` raises `InexactError`.
        """
        ...

    async def under(self, prefixes: Collection[str]) -> tuple[Mapping[str, View], View]:
        """The views of all counters with an entry whose names start with one of the prefixes, and the view that fits
        all others there: it has no entries, and the highest floor of any counter. All at one instant within the call.

        If it may lack entries of other processes, none of the views is exact.
        """
        ...

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        """The receipt keys among these whose envelopes have an entry."""
        ...

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:
        """Publish the envelopes inside this block, all of them or none.

        Their entries exist, unconfirmed, when the block begins, and are confirmed when it ends without an error. If it
        fails they are withdrawn, even if something was published, since a retry makes its own entries. An entry that
        has been removed before it is confirmed is made again, as late.
        """
        ...

    def check(self) -> None:
        """Raise the error that `entered` would raise now."""
        ...

    async def settle(self, settled: Collection[str], time: Instant, epoch: str = "") -> None:
        """Remove the entries of these receipt keys of envelopes, which the store had as `settled` at `time`.

        The floors of their counters rise to `time` in the same step. With the `epoch` of a view, `TransientError` if
        that is not the epoch in which this happens.
        """
        ...

    async def mark(self, receipt: str, counters: Collection[str], epoch: str | None = None) -> str | None:
        """Call it before a commit that inserts this receipt and changes the counters by what was not pending. From then
        on every snapshot of these counters asks for the receipt, as if it were an entry's that is not confirmed, until
        `changed` removes the mark, or `settle` does so for a reading. So no reading shows the change before all others
        have to.

        The commit must happen within `words.MARKED`, and in the epoch that this returns: see `Bounds`. `epoch`: that of
        the reading on which the commit depends. `InexactError` if there can't be a mark now; nothing has happened.
        """
        ...

    async def changed(self, counters: Collection[str], time: Instant, receipt: str = "") -> None:
        """Call it after the commit, with its time. When this returns, what any process read of the counters before
        `time` is void, and the mark is removed.

        Their entries stay. After a `TransientError` that may or may not have happened.
        """
        ...

    async def unsettled(self, limit: int) -> Mapping[str, str]:
        """Receipt keys of entries that have waited for long. Each is named again after an interval that doubles. With
        each, the first time, the id of its envelope if this process made that; else nothing.
        """
        ...
