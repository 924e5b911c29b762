"""Stores that get one thing about dead receipts with a body wrong."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from shared.model.buckets import Instant, StoreMillis
from shared.model.words import DEAD, Commit, Receipt, Total
from tests.world.memory.store import MemorySnapshot, MemoryStore


class FindsNoDead(MemoryStore):
    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as snapshot:
            snapshot._dead = {}
            yield snapshot


class FindsTheDeadOfNow(MemoryStore):
    """Not of the snapshot's instant."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        store = self

        class Late(MemorySnapshot):
            async def read(
                self, counters: Sequence[str], receipts: Collection[str]
            ) -> tuple[Mapping[str, Total], Collection[str]]:
                self._receipts = store._receipts
                return await super().read(counters, receipts)

        async with super().snapshot() as then:
            yield Late(
                then.time, then.as_of, then._configs, then._shards, then._receipts, dead=then._dead, guards=then._guards
            )


class AsksForNoIds(MemoryStore):
    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        class Forgetful(MemorySnapshot):
            async def read(
                self, counters: Sequence[str], receipts: Collection[str]
            ) -> tuple[Mapping[str, Total], Collection[str]]:
                totals, settled = await super().read(counters, receipts)
                return totals, {*settled} & {*receipts}

        async with super().snapshot() as then:
            yield Forgetful(
                then.time, then.as_of, then._configs, then._shards, then._receipts, dead=then._dead, guards=then._guards
            )


class MarksInACommitOfItsOwn(MemoryStore):
    """Between the two a snapshot finds nothing."""

    async def apply(self, commit: Commit) -> Instant:
        bare = tuple(one._replace(counters=(), body=b"") for one in commit.receipts)
        time = await super().apply(replace(commit, receipts=bare))
        if bare != commit.receipts:
            self._bodies = self._bodies | {one.key: one for one in commit.receipts if one.body}
        return time


class LetsTheDeadExpire(MemoryStore):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        self._receipts = {key: one for key, one in self._receipts.items() if one.expires}
        self._bodies = {}
        return await super().sweep(now, limit)


class KeepsTheBodyOfWhatIsReplayed(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        before = self._bodies
        time = await super().apply(commit)
        self._bodies = before | self._bodies
        return time


class FindsOnlyTheFirstCounter(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        self._bodies = {key: one._replace(counters=one.counters[:1]) for key, one in self._bodies.items()}
        return time


class LosesABodyThatComesLater(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        bare = tuple(r._replace(counters=(), body=b"") if r.state == DEAD else r for r in commit.revived)
        return await super().apply(replace(commit, revived=bare))


class BuriesWhatIsApplied(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        dead = {one.key for one in commit.receipts if one.body}
        self._receipts = {key: one for key, one in self._receipts.items() if key not in dead}
        return await super().apply(commit)


class HandsOutOnePage(MemoryStore):
    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        return () if after else await super().dead(after, limit)


class HandsOutTheLastAgain(MemoryStore):
    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        return [self._bodies[key] for key in sorted(self._bodies) if key >= after][:limit]


class CountsABurialAsASet(MemoryStore):
    """Each makes the sets under way begin anew."""

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        for one in commit.receipts:
            for counter in one.counters:
                if counter in self._guards:
                    self._guards = self._guards | {counter: self._guards[counter]._replace(version=time)}
        return time


class NamesNoCounterWithoutAConfig(MemoryStore):
    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        return [name for name in await super().dead_names(prefix, after, limit) if name in self._configs]
