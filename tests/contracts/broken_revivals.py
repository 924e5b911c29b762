"""Stores that get one thing about dead receipts wrong."""

import asyncio
from dataclasses import replace

from shared.model.buckets import Instant
from shared.model.words import Commit
from tests.world.memory.store import MemoryStore


class RevivesWhatIsNotDead(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        known = {one.key for one in commit.revived if self._receipts.get(one.key, one).state == "applied"}
        return await super().apply(replace(commit, revived=tuple(r for r in commit.revived if r.key not in known)))


class RevivesByUpsert(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        made = {one.key: one._replace(state="dead") for one in commit.revived}
        self._receipts = made | self._receipts
        return await super().apply(commit)


class RevivesOutsideTheCommit(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        await super().apply(Commit((), (), commit.revived))
        return await super().apply(replace(commit, revived=()))


class RevivesAfterTheCommit(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(replace(commit, revived=()))
        return await super().apply(Commit((), (), commit.revived)) if commit.revived else time


class ForgetsToRevive(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, revived=()))


class RevivesAll(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if commit.revived:
            self._receipts = {key: found._replace(state="applied") for key, found in self._receipts.items()}
        return time


class RevivesForShorter(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        self._receipts = self._receipts | {receipt.key: receipt for receipt in commit.revived}
        return time


class RevivesWhatIsToStayDead(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, revived=tuple(r._replace(state="applied") for r in commit.revived)))


class RevivesForAsLongAsBefore(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        found = self._receipts
        return await super().apply(
            replace(
                commit,
                revived=tuple(r._replace(expires=found[r.key].expires) for r in commit.revived if r.key in found),
            )
        )


class LooksBeforeItRevives(MemoryStore):
    """And believes what it saw a moment ago."""

    async def apply(self, commit: Commit) -> Instant:
        dead = {
            one.key for one in commit.revived if self._receipts.get(one.key, one._replace(state="")).state == "dead"
        }
        await asyncio.sleep(0)
        for key in dead:
            self._receipts = self._receipts | {key: self._receipts[key]._replace(state="dead")}
        return await super().apply(commit)
