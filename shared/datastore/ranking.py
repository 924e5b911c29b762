"""Finds the largest counters by the index of what shards hold. docs/adr/0038-largest-in-datastore.md says why none is
missed.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

from shared.datastore.keys import COUNT, KEY, NUM_SHARDS, Operator, integer, name_of, query_of, shard_of, where, within
from shared.datastore.snapshot import PastSnapshot
from shared.model.errors import UnrankedError
from shared.model.words import View, shard_key

PAGE: Final = 1_000
MOST_SCANNED: Final = 20_000
"""Shards of all counters that are looked at, those that hold most first."""
MOST_WALKED: Final = 5_000
"""Counters under the prefix that are read where that is not enough."""
MOST_SEVERAL: Final = 1_000
"""Counters of several shards that are known by name, those with most shards first."""


async def largest(
    snapshot: PastSnapshot, prefix: str, limit: int, pending: Mapping[str, View], dead: Collection[str]
) -> Sequence[str]:
    """See `RankedStore`, for one prefix, and without those that are `dead`."""
    ranking = _Ranking(snapshot, prefix, limit, pending, dead)
    if not await ranking.scan() and not await ranking.walk():
        raise UnrankedError(
            f"more than {MOST_WALKED:,} counters begin with {prefix!r}, and more than {MOST_SCANNED:,} shards of others"
            " hold more than they do, or too few of their totals are greater than 0. Give these counters a namespace"
            " of their own, or read all pages and sort them, as 'countersink list --top' does"
        )
    return ranking.names()


class _Ranking:
    """What is known of the counters under a prefix at the instant of a snapshot."""

    def __init__(
        self, snapshot: PastSnapshot, prefix: str, limit: int, pending: Mapping[str, View], dead: Collection[str]
    ) -> None:
        self._snapshot = snapshot
        self._place = snapshot.place
        self._prefix = prefix
        self._limit = limit
        self._known = {*dead}
        """The counters that were read, or need not be."""
        its = {name: view for name, view in pending.items() if name.startswith(prefix) and name not in self._known}
        self._swings = {name: _swing(view) for name, view in its.items()}
        """How much less, and how much more than its stored total a counter may be."""
        self._least: dict[str, int] = {}
        """The least totals of the counters that were read and surely exist."""
        self._most: dict[str, int] = {}
        """The greatest totals of the counters that were read, if they exist."""
        self._several: Mapping[str, int] = {}
        """The numbers of shards of these counters."""
        self._others = 1
        """How many shards all others have, at most."""
        self._all_positive = False
        """Whether every shard that holds more than 0 was looked at."""

    def names(self) -> Sequence[str]:
        last = self._last()
        if last is None:
            return [*self._most]
        return [name for name, most in self._most.items() if (-most, name) <= (-last[0], last[1])]

    def _last(self) -> tuple[int, str] | None:
        """What the last of the best is at least, and its name; None if there are not enough."""
        best = nsmallest(self._limit, ((-value, name) for name, value in self._least.items()))
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
            await self._read(name for name, count in held if self._may_be(name, count) >= least)
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
        return last is not None and last[0] > 0 and await self._is_complete(0, MOST_SEVERAL + len(self._swings))

    async def _is_complete(self, bound: int, most: int) -> bool:
        """Whether the best are known, if no shard that was not looked at holds more than `bound`. To find out, it reads
        `most` counters that have several shards, or something pending.
        """
        last = self._last()
        if last is None or last[0] < bound or (self._others > 1 and last[0] <= self._others * bound):
            return False
        if last[0] == bound:
            await self._read_equal(bound)
        apart = {*self._several, *self._swings} - self._known
        left = [name for name in apart if self._may_be(name, bound) >= last[0]]
        if len(left) > most:
            return False
        await self._read(left)
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
        await self._read(self._swings)
        size = min(self._limit, PAGE) if self._all_positive else MOST_WALKED + 1
        query = within(query_of(self._place.kinds.config, size, order=KEY, keys_only=True), self._place, self._prefix)
        read = 0
        async for page in self._pages(query):
            names = [name_of(one.entity.key)[1] for one in page]
            read += len(names)
            if read > MOST_WALKED:
                return False
            await self._read(names)
            last = self._last()
            if self._all_positive and last is not None and last[0] >= 0 and last[1] <= names[-1]:
                return True
        return True

    def _may_be(self, name: str, count: int) -> int:
        """What a counter is at most, if none of its shards holds more than `count`."""
        return self._several.get(name, self._others) * count + self._swings.get(name, (0, 0))[1]

    async def _count_shards(self) -> None:
        query = query_of(self._place.kinds.config, MOST_SEVERAL, order=NUM_SHARDS, descending=True)
        query.projection.add().property.name = NUM_SHARDS
        where(query, NUM_SHARDS, Operator.GREATER_THAN, integer_value=1)
        found = await self._snapshot.client.query(query, read_time=self._snapshot.time)
        self._several = {name_of(one.entity.key)[1]: integer(one.entity, NUM_SHARDS) for one in found}
        if len(found) == MOST_SEVERAL:
            self._others = integer(found[-1].entity, NUM_SHARDS)

    async def _read(self, names: Iterable[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name.startswith(self._prefix) and name not in self._known]
        self._known.update(new)
        totals = (await self._snapshot.read(new, ()))[0] if new else {}
        for name, total in totals.items():
            less, more = self._swings.get(name, (0, 0))
            if total.shards and (not total.guard.deleted or (total.value and name not in self._swings)):
                self._least[name] = total.value + less
            if name in self._least or name in self._swings:
                self._most[name] = total.value + more

    def _pages(self, query: Any) -> AsyncIterator[Sequence[Any]]:
        return self._snapshot.client.pages(query, read_time=self._snapshot.time)


def _swing(view: View) -> tuple[int, int]:
    """How much less, and how much more than its stored total the counter may be: some of it may be stored."""
    deltas = [delta for entry in view.entries for delta in (entry.delta, *(delta for _, delta in entry.keyed))]
    return sum(min(delta, 0) for delta in deltas), sum(max(delta, 0) for delta in deltas)
