"""A store in memory, with its whole history, so that a snapshot can be of any instant."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from shared.clock import Clock
from shared.errors import AlreadyAppliedError, RefusedError, ShardFullError
from shared.words import SHARD_FULL, Commit, Receipt, Receipts, Total


class MemoryStore:
    """Its time is the number of commits so far. State is replaced, never changed, so a snapshot is a reference."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time = 0
        self._configs: dict[str, int] = {}
        self._shards: dict[tuple[str, int], int] = {}
        self._receipts: dict[str, Receipt] = {}

    async def apply(self, commit: Commit) -> int:
        if commit.repeats() or any(receipt.key in self._receipts for receipt in commit.receipts):
            raise AlreadyAppliedError("a receipt of this commit exists")
        dead = {key: receipt for key, receipt in self._receipts.items() if receipt.state == "dead"}
        if any(receipt.key not in dead for receipt in commit.revived):
            raise AlreadyAppliedError("a receipt to be revived is not dead")
        if any(not -(2**63) <= add.delta < 2**63 for add in commit.adds):
            raise RefusedError("a sum is beyond int64")
        full = {
            (add.counter, add.shard)
            for add in commit.adds
            if not -SHARD_FULL <= self._shards.get((add.counter, add.shard), 0) <= SHARD_FULL
        }
        if full:
            raise ShardFullError(full)
        shards, configs = dict(self._shards), dict(self._configs)
        for counter, shard, delta, num_shards in commit.adds:
            if (counter, shard) not in shards:
                configs[counter] = max(configs.get(counter, 0), num_shards)
            shards[counter, shard] = shards.get((counter, shard), 0) + delta
        self._shards, self._configs = shards, configs
        revived = [r._replace(expires=max(r.expires, dead[r.key].expires)) for r in commit.revived]
        self._receipts = self._receipts | {receipt.key: receipt for receipt in (*commit.receipts, *revived)}
        self._time += 1
        return self._time

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["MemorySnapshot"]:
        yield MemorySnapshot(self._time, self._clock.now(), self._configs, self._shards, self._receipts)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        return Receipts(self._time, {key: self._receipts[key] for key in keys if key in self._receipts})

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        return {counter: self._configs[counter] for counter in counters if counter in self._configs}

    async def raise_shards(self, counter: str, num_shards: int) -> int:
        now = max(self._configs.get(counter, 0), num_shards)
        self._configs = self._configs | {counter: now}
        return now

    async def names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        return sorted(name for name in self._configs if name.startswith(prefix) and name > after)[:limit]

    async def sweep(self, now: int, limit: int) -> int:
        expired = [key for key, receipt in self._receipts.items() if receipt.expires < now][:limit]
        self._receipts = {key: r for key, r in self._receipts.items() if key not in expired}
        return len(expired)


class MemorySnapshot:
    """References to what was current."""

    exact = True

    def __init__(
        self,
        time: int,
        as_of: float,
        configs: Mapping[str, int],
        shards: Mapping[tuple[str, int], int],
        receipts: Mapping[str, Receipt],
    ) -> None:
        self.time = time
        self.as_of = as_of
        self._configs = configs
        self._shards = shards
        self._receipts = receipts

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        totals = {}
        for counter in counters:
            num_shards = self._configs.get(counter, 0)
            value = sum(self._shards.get((counter, index), 0) for index in range(num_shards))
            totals[counter] = Total(value, num_shards)
        applied = {k for k in receipts if k in self._receipts and self._receipts[k].state == "applied"}
        return totals, applied
