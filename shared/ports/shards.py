"""The role of a store that decides how many shards a counter has."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from shared.model.words import Receipt
from shared.ports.commits import StoreClock


class ShardNumbers(StoreClock, Protocol):
    """Reads and changes the number of shards of counters."""

    @property
    def parallel(self) -> bool:
        """Whether a counter with more shards takes more writes."""
        ...

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        """`num_shards` of those of the counters that have a config."""
        ...

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        """Have at least that many shards; returns the number now.

        A counter without a config gets one, unless `make` is false: then nothing happens and the number is 0.
        """
        ...

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        """Have fewer shards: move what the highest shards hold to the others, in one commit with the receipt.

        Returns the number now, which is above `num_shards` if not all of them fit into one commit. Nothing happens if
        the counter has no more than that. Concurrent adds are not lost.

        Raises:
        `ContendedError` if somebody writes to the counter meanwhile; nothing was done;
        `CrowdedError` if so few shards can't hold the value;
        `AlreadyAppliedError` if the receipt exists, so it was done before.
        """
        ...

    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        """Pages of counters that have more shards than that. A counter that changes meanwhile may be missed."""
        ...

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since each of these shards was last written. Shards that do not exist, or whose age the store does
        not know, are left out.
        """
        ...
