"""What the core needs of an overlay, and may rely on from every adapter."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.model.envelope import Envelope
from shared.model.words import View


class Overlay(Protocol):
    """Accepted envelopes that are not known to be applied: entries and a floor per counter."""

    async def view(self, counters: Sequence[str]) -> Mapping[str, View]:
        """Entries and floor of each of the counters, all at one instant within the call."""
        ...

    async def names(self, prefix: str) -> Sequence[str]:
        """Counters with an entry that start with the prefix, in any order."""
        ...

    async def holds(self, keys: Collection[str]) -> Collection[str]:
        """Those of the envelopes' receipt keys that have an entry."""
        ...

    def entered(self, envelopes: Sequence[Envelope]) -> AbstractAsyncContextManager[None]:
        """Publish them inside it, all or none at once.

        Their entries are there, unconfirmed, when the block begins; confirmed when it has ended well; withdrawn when it
        fails, even if something was published: whoever tries again makes entries of its own. An entry that is gone when
        it is to be confirmed is made anew, late.
        """
        ...

    def check(self) -> None:
        """Raise what `entered` would raise now."""
        ...

    async def settle(self, applied: Collection[str], time: int) -> None:
        """These receipts of envelopes are `settled`, seen at `time` of the store: their counters' floors rise to it,
        then their entries go.
        """
        ...

    async def raise_floor(self, counter: str, time: int) -> None:
        """What was read of the counter before `time` of the store is void, for all processes, when this returns.

        Its entries stay. `TransientError`: nobody knows.
        """
        ...

    async def unsettled(self, limit: int) -> Collection[str]:
        """Receipt keys of entries that nobody has settled for long. Named again after a while that doubles."""
        ...
