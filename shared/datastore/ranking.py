"""Finds the largest counters by the index of what shards hold. docs/adr/0038-largest-in-datastore.md says why none is
missed.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

from shared.datastore.keys import (
    COUNT,
    KEY,
    NUM_SHARDS,
    Operator,
    integer,
    name_of,
    query_of,
    shard_of,
    where,
    within,
)
from shared.datastore.snapshot import PastSnapshot
from shared.model.errors import UnrankedError
from shared.model.words import shard_key

PAGE: Final = 1_000
MOST_SCANNED: Final = 20_000
"""Shards of all counters that are looked at, those that hold most first."""
MOST_READ: Final = 5_000
"""Counters under the prefix that are read where that is not enough."""
MOST_SEVERAL: Final = 1_000
"""Counters of several shards that are known by name, those with most shards first."""


async def largest(snapshot: PastSnapshot, prefix: str, limit: int, besides: set[str]) -> Sequence[str]:
    """See `RankedStore`, for one prefix."""
    ranking = _Ranking(snapshot, prefix, limit, besides)
    if not await ranking.scan() and not await ranking.walk():
        raise UnrankedError(
            f"more than {MOST_READ:,} counters begin with {prefix!r}, and more than {MOST_SCANNED:,} shards of others"
            " hold more than they do, or too few of their totals are greater than 0. Give these counters a namespace"
            " of their own, or read all pages and sort them, as 'countersink list --top' does"
        )
    return [name for _, name in ranking.best()]


class _Ranking:
    """What is known of the counters under a prefix at the instant of a snapshot."""

    def __init__(self, snapshot: PastSnapshot, prefix: str, limit: int, besides: set[str]) -> None:
        self._snapshot = snapshot
        self._place = snapshot.place
        self._prefix = prefix
        self._limit = limit
        self._known = {*besides}
        """Those that were read, or need not be."""
        self._values: dict[str, int] = {}
        """Of those that were read and exist."""
        self._several: Mapping[str, int] = {}
        """How many shards these have."""
        self._others = 1
        """How many shards all others have, at most."""
        self._all_positive = False
        """Whether every shard that holds more than 0 was looked at."""

    def best(self) -> list[tuple[int, str]]:
        """The negative value, and the name."""
        return nsmallest(self._limit, ((-value, name) for name, value in self._values.items()))

    def _last(self) -> tuple[int, str] | None:
        """The value and the name of the last of the best; None if there are not enough."""
        best = self.best()
        return (-best[-1][0], best[-1][1]) if len(best) == self._limit else None

    async def scan(self) -> bool:
        """Look at shards, those that hold most first, until no counter can be missing. Whether that is so."""
        await self._count_shards()
        query = query_of(self._place.kinds.shard, min(self._limit + 1, PAGE), order=COUNT, descending=True)
        query.projection.add().property.name = COUNT
        scanned = 0
        async for page in self._pages(where(query, COUNT, Operator.GREATER_THAN, integer_value=0)):
            held = [(shard[0], integer(one.entity, COUNT)) for one in page if (shard := shard_of(one.entity.key))]
            least = (self._last() or (0, ""))[0]
            await self._read(name for name, count in held if self._number(name) * count >= least)
            scanned += len(page)
            is_end = scanned >= MOST_SCANNED
            bound = integer(page[-1].entity, COUNT)
            if bound and await self._is_complete(bound, MOST_SEVERAL if is_end else self._limit):
                return True
            if is_end:
                return False
            query.limit.value = min(2 * query.limit.value, PAGE)
        self._all_positive = True
        last = self._last()
        return last is not None and last[0] > 0

    async def _is_complete(self, bound: int, most: int) -> bool:
        """Whether the best are known, if no shard that was not looked at holds more than `bound`. To find out, it reads
        `most` counters of several shards.
        """
        last = self._last()
        if last is None or last[0] < bound or (self._others > 1 and last[0] <= self._others * bound):
            return False
        if last[0] == bound:
            await self._read_equal(bound)
        several = [name for name, number in self._several.items() if number * bound >= last[0]]
        if len([name for name in several if name not in self._known]) > most:
            return False
        await self._read(several)
        return True

    async def _read_equal(self, count: int) -> None:
        """Read counters of one shard that holds exactly that, until none of the others can be among the best.

        Keys are in the order of names, but for a name that another one begins with.
        """
        first = shard_key(self._prefix, 0).removesuffix("-0")
        query = query_of(self._place.kinds.shard, self._limit, order=KEY, keys_only=True)
        where(query, COUNT, Operator.EQUAL, integer_value=count)
        async for page in self._pages(within(query, self._place, first)):
            names = [shard[0] for one in page if (shard := shard_of(one.entity.key))]
            end, key = names[-1] if names else "", name_of(page[-1].entity.key)[1]
            before = [end[:size] for size in range(1, len(end)) if shard_key(end[:size], 0) > key]
            await self._read([*names, *before])
            last = self._last()
            if last is None or last[0] > count or last[1] <= end:
                return

    async def walk(self) -> bool:
        """Read the counters in the order of their names, until none can be missing. Whether that is so."""
        size = min(self._limit, PAGE) if self._all_positive else MOST_READ + 1
        query = within(query_of(self._place.kinds.config, size, order=KEY, keys_only=True), self._place, self._prefix)
        read = 0
        async for page in self._pages(query):
            names = [name_of(one.entity.key)[1] for one in page]
            read += len(names)
            if read > MOST_READ:
                return False
            await self._read(names)
            last = self._last()
            if self._all_positive and last is not None and last[0] >= 0 and last[1] <= names[-1]:
                return True
        return True

    def _number(self, name: str) -> int:
        return self._several.get(name, self._others)

    async def _count_shards(self) -> None:
        query = query_of(self._place.kinds.config, MOST_SEVERAL, order=NUM_SHARDS, descending=True)
        query.projection.add().property.name = NUM_SHARDS
        where(query, NUM_SHARDS, Operator.GREATER_THAN, integer_value=1)
        found = await self._snapshot.client.query(self._place.partition, query, read_time=self._snapshot.time)
        self._several = {name_of(one.entity.key)[1]: integer(one.entity, NUM_SHARDS) for one in found}
        if len(found) == MOST_SEVERAL:
            self._others = integer(found[-1].entity, NUM_SHARDS)

    async def _read(self, names: Iterable[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name.startswith(self._prefix) and name not in self._known]
        self._known.update(new)
        totals = (await self._snapshot.read(new, ()))[0] if new else {}
        for name, total in totals.items():
            if total.shards and (total.value or not total.guard.deleted):
                self._values[name] = total.value

    def _pages(self, query: Any) -> AsyncIterator[Sequence[Any]]:
        return self._snapshot.client.pages(self._place.partition, query, read_time=self._snapshot.time)
