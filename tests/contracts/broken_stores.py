"""Stores with one mistake each."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from shared.model.buckets import BEGINNING, Instant, StoreMillis, WallSeconds
from shared.model.errors import RefusedError
from shared.model.words import Commit, Receipts, Total
from shared.runtime.clock import Clock
from tests.world.memory.store import MemorySnapshot, MemoryStore


class AppliesWithoutReceipts(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(Commit((), commit.adds))


class AppliesHalfOfACommit(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        await super().apply(Commit((), commit.adds[:1]))
        return await super().apply(Commit(commit.receipts, commit.adds[1:]))


class TakesDeadForApplied(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(Commit(tuple(r._replace(state="applied") for r in commit.receipts), commit.adds))


class OverwritesReceipts(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        for receipt in commit.receipts:
            self._receipts = {key: found for key, found in self._receipts.items() if key != receipt.key}
        return await super().apply(commit)


class LosesUpdates(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        shards = self._shards
        await asyncio.sleep(0)
        self._shards = shards
        return await super().apply(commit)


class LowersShards(MemoryStore):
    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        self._configs = self._configs | {counter: num_shards}
        return num_shards


class HidesNewShards(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, adds=tuple(add._replace(num_shards=1) for add in commit.adds)))


class FillsShards(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        shards, self._shards = self._shards, {}
        time = await super().apply(commit)
        added, self._shards = self._shards, shards
        for shard, count in added.items():
            self._shards = self._shards | {shard: self._shards.get(shard, 0) + count}
        return time


class StandsStill(MemoryStore):
    async def receipts(self, keys: Collection[str]) -> Receipts:
        return Receipts(BEGINNING, (await super().receipts(keys)).found)


class TellsAnEarlierInstant(MemoryStore):
    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        time = self._time
        await asyncio.sleep(0)
        return time, (await super().applied(first, last, limit))[1]


class FindsNeighbours(MemoryStore):
    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        return await super().applied(first, last + "~", limit)


class FindsNoEnvelopes(MemoryStore):
    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        return (await super().applied(first, last, limit))[0], ()


class Tears(MemoryStore):
    """Each counter as it is when it is its turn."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as first:
            yield _Torn(self, first)


class _Torn(MemorySnapshot):
    def __init__(self, store: MemoryStore, first: MemorySnapshot) -> None:
        self._store = store
        self.time, self.as_of, self.now = first.time, first.as_of, first.now

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        totals: dict[str, Total] = {}
        applied: Collection[str] = ()
        for counter in counters:
            async with MemoryStore.snapshot(self._store) as now:
                some, applied = await now.read([counter], receipts)
            totals |= some
            await asyncio.sleep(0)
        return totals, applied


class SortsBackwards(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return [*reversed(await super().names(prefix, after, limit, until))]


class SweepsAll(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        return await super().sweep(StoreMillis(2**60), limit)


class LeavesReceiptsOfAConflict(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        for receipt in commit.receipts:
            await super().apply(Commit((receipt,), ()))
        return await super().apply(Commit((), commit.adds))


class LowersShardsOnApply(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        self._configs = self._configs | {add.counter: add.num_shards for add in commit.adds}
        return time


class MakesNoConfigForZero(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, adds=tuple(add for add in commit.adds if add.delta)))


class WrapsAround(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        adds = tuple(add._replace(delta=(add.delta + 2**63) % 2**64 - 2**63) for add in commit.adds)
        return await super().apply(replace(commit, adds=adds))


class AppliesWhatItRefuses(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        try:
            return await super().apply(commit)
        except RefusedError:
            await super().apply(replace(commit, adds=commit.adds[:1]))
            raise


class CountsAFullShardOfOthers(MemoryStore):
    """Applies what it can of a commit with a full shard."""

    async def apply(self, commit: Commit) -> Instant:
        for add in commit.adds[1:]:
            await super().apply(Commit((), (add,)))
        return await super().apply(Commit(commit.receipts, commit.adds[:1]))


class TimeOfTheNextCommit(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return Instant(await super().apply(commit) + 1)


class TimeOfTheCommitBefore(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return Instant(await super().apply(commit) - 1)


class LooksBack(MemoryStore):
    """Every other snapshot is the one before."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as now:
            last = self.__dict__.pop("last", None)
            if last is None:
                self.__dict__["last"] = now
            yield last or now


class AsksForReceiptsLater(MemoryStore):
    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as now:
            yield _Later(self, now)


class _Later(MemorySnapshot):
    def __init__(self, store: MemoryStore, first: MemorySnapshot) -> None:
        self.__dict__.update(first.__dict__)
        self._store = store

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        totals, _ = await super().read(counters, ())
        async with MemoryStore.snapshot(self._store) as now:
            return totals, (await now.read((), receipts))[1]


class InMilliseconds(MemoryStore):
    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as now:
            now.as_of = WallSeconds(now.as_of * 1_000)
            yield now


class SortsByCase(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        names = sorted(await super().names(prefix, after, 10**6, until), key=lambda name: name.encode("utf-16-be"))
        return names[:limit]


class CountsWhatComesBehind(MemoryStore):
    async def count(self, prefix: str, most: int) -> int:
        return min(sum(name >= prefix for name in self._configs), most)


class CountsInUtf16(MemoryStore):
    """As a range of keys would be in the wrong order."""

    async def count(self, prefix: str, most: int) -> int:
        begin, end = (text.encode("utf-16-be") for text in (prefix, prefix + "\uffff"))
        return min(sum(begin <= name.encode("utf-16-be") <= end for name in self._configs), most)


class CountsWithoutEnd(MemoryStore):
    async def count(self, prefix: str, most: int) -> int:
        return await super().count(prefix, max(most, 10**6))


class CountsWhatWasThere(MemoryStore):
    async def count(self, prefix: str, most: int) -> int:
        return min(len({name for name, _ in self._written if name.startswith(prefix)}), most)


class NamesTheOneItComesAfter(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        first = [after] if after in self._configs and after.startswith(prefix) else []
        return [*first, *await super().names(prefix, after, limit, until)][:limit]


class NamesByComparing(MemoryStore):
    """Takes all behind the prefix for what begins with it."""

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        names = await super().names("", after, 10**6, until)
        return [name for name in names if name >= prefix][:limit]


class NamesWithoutEnd(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return await super().names(prefix, after, limit)


class NamesBeforeTheEnd(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return [name for name in await super().names(prefix, after, limit, until) if name != until]


class NamesWhatTheEndBeginsWith(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return await super().names(prefix, after, limit, until and f"{until}~")


class NamesTooMany(MemoryStore):
    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        return await super().names(prefix, after, limit + 1, until)


class SweepsWithoutLimit(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        return await super().sweep(now, 10**6)


class SweepsByKeys(MemoryStore):
    """Once a receipt has expired, the one that comes after it is deleted, too."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.seen: set[str] = set()

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        self.seen |= {key for key, one in self._receipts.items() if 0 < one.expires < now}
        gone = len(self._receipts.keys() & self.seen)
        self._receipts = {key: one for key, one in self._receipts.items() if key not in self.seen}
        return gone + await super().sweep(now, limit - gone)


class SweepsATickEarly(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        return await super().sweep(StoreMillis(now + 1), limit)


class MakesUpShards(MemoryStore):
    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        return {counter: self._configs.get(counter, 1) for counter in counters}
