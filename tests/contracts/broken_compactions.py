"""Stores with one mistake each about compactions."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

from shared.model.buckets import Instant
from shared.model.errors import CrowdedError
from shared.model.words import Commit, Guard, Receipt
from tests.world.memory.store import MemoryStore


class DropsWhatIsMoved(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        kept = {shard: count for shard, count in self._shards.items() if shard[0] != counter or shard[1] < num_shards}
        number = await super().compact(counter, num_shards, receipt)
        self._shards = kept
        return number


class LeavesTheHighest(MemoryStore):
    """A shard that is still there may be updated, and nobody reads it."""

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        highest = {shard: 0 for shard in self._shards if shard[0] == counter and shard[1] >= num_shards}
        number = await super().compact(counter, num_shards, receipt)
        self._shards = highest | self._shards
        return number


class LeavesTheNumber(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        configs = self._configs
        number = await super().compact(counter, num_shards, receipt)
        self._configs = configs
        return number


class RaisesToo(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        number = await super().compact(counter, num_shards, receipt)
        self._configs = self._configs | {counter: num_shards}
        return number or num_shards


class ForgetsTheReceipt(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        receipts = self._receipts
        number = await super().compact(counter, num_shards, receipt)
        self._receipts = receipts
        return number


class CompactsTwice(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        self._receipts = {key: one for key, one in self._receipts.items() if key != receipt.key}
        return await super().compact(counter, num_shards, receipt)


class ReceiptOfNothing(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        number = await super().compact(counter, num_shards, receipt)
        self._receipts = self._receipts | {receipt.key: receipt}
        return number


class MakesAnewWhatWent(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, adds=tuple(add._replace(known=0) for add in commit.adds)))


class MakesAnewOutOfSight(MemoryStore):
    """What is added to it, nobody reads."""

    async def apply(self, commit: Commit) -> Instant:
        configs = self._configs
        time = await super().apply(replace(commit, adds=tuple(add._replace(known=0) for add in commit.adds)))
        self._configs = self._configs | configs
        return time


class TellsWhoMakesItAnew(MemoryStore):
    """Whoever removes a counter makes those wait for ever who believe in it."""

    async def apply(self, commit: Commit) -> Instant:
        configs = self._configs
        self._configs = {add.counter: 1 for add in commit.adds if add.known > 1} | configs
        try:
            return await super().apply(commit)
        except Exception:
            self._configs = configs
            raise


class BringsTheOthersBack(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        new = {add for add in commit.adds if (add.counter, add.shard) not in self._shards}
        time = await super().apply(commit)
        for add in new:
            self._configs = self._configs | {add.counter: max(self._configs[add.counter], add.num_shards)}
        return time


class LosesWhatComesMeanwhile(MemoryStore):
    """It moves what it saw before."""

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        seen = {shard: count for shard, count in self._shards.items() if shard[0] == counter}
        await asyncio.sleep(0)
        self._shards = self._shards | seen
        return await super().compact(counter, num_shards, receipt)


class Overfills(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        try:
            return await super().compact(counter, num_shards, receipt)
        except CrowdedError:
            rest = {s: count for s, count in self._shards.items() if s[0] != counter}
            self._shards = rest | {(counter, 0): self._held(counter)}
            self._configs = self._configs | {counter: num_shards}
            return num_shards


class AllIntoTheFirst(MemoryStore):
    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        number = await super().compact(counter, num_shards, receipt)
        held = {s: count for s, count in self._shards.items() if s[0] == counter}
        if held:
            self._shards = self._shards | dict.fromkeys(held, 0) | {(counter, 0): sum(held.values())}
        return number


class ChangesTheGuard(MemoryStore):
    """Whoever compacts a counter disturbs those who set it."""

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        number = await super().compact(counter, num_shards, receipt)
        self._guards = self._guards | {counter: Guard(self._time)}
        return number


class FindsAll(MemoryStore):
    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        return super().grown(0)


class FindsThoseThatHaveAsMany(MemoryStore):
    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        return super().grown(shards - 1)


class AlwaysMakes(MemoryStore):
    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        return await super().raise_shards(counter, num_shards)


class KnowsTheAgeOfAll(MemoryStore):
    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        return dict.fromkeys(shards, 0.0)


class OldWhenWritten(MemoryStore):
    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        return {shard: age + 1e9 for shard, age in (await super().ages(shards)).items()}
