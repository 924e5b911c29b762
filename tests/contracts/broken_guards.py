"""Stores with one mistake each about guards."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from shared.model.buckets import Instant
from shared.model.errors import ChangedError
from shared.model.words import Commit, Guard
from tests.world.memory.store import MemorySnapshot, MemoryStore


class ChecksNoGuard(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        if commit.guard is not None:
            counter, guard = commit.guard
            seen = self._guards.get(counter, Guard()).version
            commit = replace(commit, guard=(counter, guard._replace(version=seen)))
        return await super().apply(commit)


class LeavesGuards(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        guards = self._guards
        time = await super().apply(commit)
        self._guards = guards
        return time


class AppliesBeforeItLooks(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        try:
            return await super().apply(commit)
        except ChangedError:
            await super().apply(replace(commit, receipts=(), guard=None))
            raise


class LeavesTheReceipt(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        try:
            return await super().apply(commit)
        except ChangedError:
            await super().apply(replace(commit, adds=(), guard=None))
            raise


class KeepsTheFirstMark(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        before = self._guards
        time = await super().apply(commit)
        if commit.guard is not None and (old := before.get(commit.guard[0])):
            now = self._guards[commit.guard[0]]
            self._guards = self._guards | {commit.guard[0]: now._replace(deleted=old.deleted)}
        return time


class OneGuardForAll(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if commit.guard is not None:
            self._guards = self._guards | {"c": self._guards[commit.guard[0]]}
        return time


class GuardsIncrements(MemoryStore):
    """Whoever adds to a counter disturbs those who set it."""

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        for add in commit.adds:
            if add.counter in self._guards:
                now = self._guards[add.counter]._replace(version=time)
                self._guards = self._guards | {add.counter: now}
        return time


class SkipsWhatChangesNothing(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(commit if commit.adds else replace(commit, guard=None))


class GuardOfNow(MemoryStore):
    """Totals of the instant, and a guard that is younger: two sets may add up."""

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[MemorySnapshot]:
        async with super().snapshot() as then:
            store = self

            class Late(MemorySnapshot):
                @property
                def _guards(self) -> dict[str, Guard]:
                    return store._guards

                @_guards.setter
                def _guards(self, _: object) -> None:
                    """Asked for when it is read."""

            yield Late(then.time, then.as_of, then._configs, then._shards, then._receipts, dead=then._dead, guards={})


class RemovesWhatIsUsed(MemoryStore):
    async def remove(self, counter: str) -> bool:
        self._shards = {shard: count for shard, count in self._shards.items() if shard[0] != counter}
        return await super().remove(counter)


class RemovesWhatIsNotMarked(MemoryStore):
    async def remove(self, counter: str) -> bool:
        if counter in self._configs:
            self._guards = self._guards | {counter: self._guards.get(counter, Guard())._replace(deleted=True)}
        return await super().remove(counter)


class LeavesTheMark(MemoryStore):
    async def remove(self, counter: str) -> bool:
        guards = self._guards
        removed = await super().remove(counter)
        self._guards = guards
        return removed


class LeavesShards(MemoryStore):
    async def remove(self, counter: str) -> bool:
        shards = self._shards
        removed = await super().remove(counter)
        self._shards = shards
        return removed


class LeavesTheConfig(MemoryStore):
    async def remove(self, counter: str) -> bool:
        configs = self._configs
        removed = await super().remove(counter)
        self._configs = configs
        return removed


class RemovesTheGuard(MemoryStore):
    async def remove(self, counter: str) -> bool:
        removed = await super().remove(counter)
        if removed:
            self._guards = {name: guard for name, guard in self._guards.items() if name != counter}
        return removed


class RemovesUnseen(MemoryStore):
    """Who saw what it removed takes it for being there."""

    async def remove(self, counter: str) -> bool:
        version = self._guards.get(counter, Guard()).version
        removed = await super().remove(counter)
        if removed:
            self._guards = self._guards | {counter: Guard(version)}
        return removed


class RemovesWhatItSawBefore(MemoryStore):
    """What others add between its look and its deletion is lost."""

    async def remove(self, counter: str) -> bool:
        held = sum(count for (name, _), count in self._shards.items() if name == counter)
        await asyncio.sleep(0)
        if held:
            return False
        self._shards = {shard: count for shard, count in self._shards.items() if shard[0] != counter}
        return await super().remove(counter)


class FindsAllAtOnce(MemoryStore):
    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        return await super().deleted(after, 10**6)


class FindsTheFirstAgain(MemoryStore):
    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        found = await super().deleted("", 10**6)
        return [name for name in found if name >= after][:limit]


class TakesAGuardForAMark(MemoryStore):
    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        return {counter for counter in counters if counter in self._guards}


class TellsAllThatAreMarked(MemoryStore):
    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        return await super().deleted_among([*self._guards])
