"""A store in memory."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from shared.counters.pending import ids_of
from shared.model.buckets import BEGINNING, Counts, Instant, StoreMillis, WallMillis, WallSeconds
from shared.model.dead_letters import entries_of_dead
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
)
from shared.model.receipts import Promise, read_note
from shared.model.words import (
    DEAD,
    SHARD_FULL,
    Bounds,
    Commit,
    Guard,
    Receipt,
    Receipts,
    Total,
    View,
    moved,
    number_for,
    was_compacted,
)
from shared.ports.store import Config, Shard, Snapshot, StoredReceipt
from shared.runtime.clock import Clock
from tests.world.memory.audit_data import MemoryAuditData, pages
from tests.world.memory.buckets import MemoryBuckets


class MemoryStore:
    """Time counts commits, compactions and removals. State is replaced, never changed, so snapshots are references."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time = BEGINNING
        self._configs: dict[str, int] = {}
        self._shards: dict[tuple[str, int], int] = {}
        self._receipts: dict[str, Receipt] = {}
        self._bodies: dict[str, Receipt] = {}
        """The receipts that have a body, which are few."""
        self._times: dict[str, Instant] = {}
        self._carried: dict[str, int] = {}
        self._guards: dict[str, Guard] = {}
        self._marks: dict[tuple[str, str], int] = {}
        self._written: dict[tuple[str, int], float] = {}
        self._updated: dict[str, int] = {}
        """When each counter was added to last."""
        self._promises: dict[tuple[int, ...], Promise] = {}
        self._buckets = MemoryBuckets()
        self.epoch = ""
        """The nonce of the overlay that the fleet names."""

    def tick(self) -> Instant:
        """Go on to the next instant, and return it."""
        self._time = Instant(self._time + 1)
        return self._time

    def used(self) -> bool:
        """Whether it has any receipt."""
        return bool(self._receipts)

    async def now(self) -> StoreMillis:
        """The time of the store's own clock, whichever process asks."""
        return StoreMillis(int(self._clock.now() * 1000))

    async def promises(self) -> Sequence[Promise]:
        return [*self._promises.values()]

    async def promise(self, one: Promise) -> None:
        there = self._promises.get(one[:2], one)
        self._promises[one[:2]] = one._replace(seen=max(one.seen, there.seen))

    async def apply(self, commit: Commit) -> Instant:
        await self._check_bounds(commit.bounds)
        if commit.repeats() or any(receipt.key in self._receipts for receipt in commit.receipts):
            raise AlreadyAppliedError("a receipt of this commit exists")
        written = self._written_by(commit)
        if commit.guard is not None and self._guards.get(commit.guard[0], Guard()).version != commit.guard[1].version:
            raise ChangedError(f"{commit.guard[0]} has been set meanwhile")
        if any(self._marks.get(mark[:2], 0) != mark.seen for mark in commit.marks):
            raise ChangedError("a counter of this commit has been imported meanwhile")
        if any(not -(2**63) <= add.delta < 2**63 for add in commit.adds):
            raise RefusedError("a sum is beyond int64")
        full = {
            (add.counter, add.shard)
            for add in commit.adds
            if not -SHARD_FULL <= self._shards.get((add.counter, add.shard), 0) <= SHARD_FULL
        }
        wall = int(self._clock.now() * 1_000)
        full |= self._buckets.full(commit.by_time, wall)
        if full:
            raise ShardFullError(full)
        self._check_shards(commit)
        shards, configs = dict(self._shards), dict(self._configs)
        for add in commit.adds:
            shard = add.counter, add.shard
            self._written[shard] = self._clock.monotonic()
            if shard not in shards:
                there = configs.get(add.counter, 0)
                configs[add.counter] = max(there, number_for(add, there))
            shards[shard] = shards.get(shard, 0) + add.delta
        self._updated = self._updated | dict.fromkeys([add.counter for add in commit.adds], wall)
        self._shards, self._configs = shards, configs
        self._buckets = self._buckets.after(commit.by_time, wall)
        self._receipts = self._receipts | written
        if commit.revived or any(receipt.body for receipt in commit.receipts):
            its = (self._bodies | written).items()
            self._bodies = {key: receipt for key, receipt in its if receipt.body}
        self.tick()
        if commit.guard is not None:
            self._guards = self._guards | {commit.guard[0]: commit.guard[1]._replace(version=self._time)}
        self._marks = self._marks | {mark[:2]: mark.total for mark in commit.marks}
        self._times.update(dict.fromkeys(written, self._time))
        return self._time

    def _written_by(self, commit: Commit) -> dict[str, Receipt]:
        """The receipts as they will be after the commit, by key."""
        dead = {key: receipt for key, receipt in self._receipts.items() if receipt.state == DEAD}
        if any(receipt.key not in dead for receipt in commit.revived):
            raise AlreadyAppliedError("a receipt to be revived is not dead")
        return {one.key: one for one in (*commit.receipts, *(one.over(dead[one.key]) for one in commit.revived))}

    async def close_periods(self, until: WallMillis) -> None:
        self._buckets = self._buckets.closing(until, int(self._clock.now() * 1_000))

    async def _check_bounds(self, bounds: Bounds) -> None:
        now = await self.now()
        if bounds.until is not None and now > bounds.until:
            raise LateError(now)
        if bounds.epoch not in {None, self.epoch}:
            raise ChangedError("the fleet has named another overlay meanwhile")

    def _check_shards(self, commit: Commit) -> None:
        """Raise `ShrunkError` if a shard does not exist because its counter was compacted."""
        shrunk = {
            add.counter
            for add in commit.adds
            if (add.counter, add.shard) not in self._shards and was_compacted(add, self._configs.get(add.counter, 0))
        }
        if shrunk:
            raise ShrunkError(shrunk)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["MemorySnapshot"]:
        now = self._clock.now()
        yield MemorySnapshot(
            self._time,
            now,
            self._configs,
            self._shards,
            self._receipts,
            dead=self._bodies,
            guards=self._guards,
            buckets=self._buckets,
            updated=self._updated,
        )

    @asynccontextmanager
    async def audit_data(self) -> AsyncIterator[MemoryAuditData]:
        receipts = [
            StoredReceipt(self._receipts[key], self._times.get(key, BEGINNING)) for key in sorted(self._receipts)
        ]
        names = sorted({*self._configs, *self._carried})
        configs = [Config(name, self._configs.get(name, 0), self._carried.get(name, 0), None) for name in names]
        shards = [Shard(*key, count, BEGINNING) for key, count in sorted(self._shards.items())]
        async with self.snapshot() as snapshot:
            yield MemoryAuditData(receipts, configs, shards, self._buckets, snapshot)

    async def receipts(self, keys: Collection[str]) -> Receipts:
        return Receipts(self._time, {key: self._receipts[key] for key in keys if key in self._receipts})

    async def receipts_from(self, prefix: str, after: str, limit: int) -> Sequence[Receipt]:
        keys = sorted(key for key in self._receipts if key.startswith(prefix) and key > after)
        return [self._receipts[key] for key in keys[:limit]]

    async def applied(self, first: str, last: str, limit: int) -> tuple[Instant, Collection[str]]:
        found = sorted(
            (one.envelope, key) for key, one in self._receipts.items() if one.envelope and first <= one.envelope <= last
        )
        return self._time, [key for _, key in found[:limit]]

    async def dead(self, after: str, limit: int) -> Sequence[Receipt]:
        return [self._bodies[key] for key in sorted(self._bodies) if key > after][:limit]

    async def shards(self, counters: Sequence[str]) -> Mapping[str, int]:
        return {counter: self._configs[counter] for counter in counters if counter in self._configs}

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return {name: self._marks[source, name] for name in counters if (source, name) in self._marks}

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool = True) -> int:
        if not make and counter not in self._configs:
            return 0
        now = max(self._configs.get(counter, 0), num_shards)
        self._configs = self._configs | {counter: now}
        return now

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        number = self._configs.get(counter, 0)
        if receipt.key in self._receipts:
            raise AlreadyAppliedError("the receipt of this compaction exists")
        if number <= num_shards:
            return number
        shards = {shard: count for shard, count in self._shards.items() if shard[0] != counter or shard[1] < num_shards}
        leaving = sum(self._shards.values()) - sum(shards.values())
        given = moved(counter, [shards.get((counter, index), 0) for index in range(num_shards)], leaving)
        for index, part in enumerate(given):
            if part:
                shards[counter, index] = shards.get((counter, index), 0) + part
                self._written[counter, index] = self._clock.monotonic()
        self._shards, self._configs = shards, self._configs | {counter: num_shards}
        self._receipts = self._receipts | {receipt.key: receipt}
        self.tick()
        self._times[receipt.key] = self._time
        return num_shards

    def grown(self, shards: int) -> AsyncIterator[Sequence[str]]:
        return pages(sorted(name for name, number in self._configs.items() if number > shards))

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        now = self._clock.monotonic()
        return {shard: now - self._written[shard] for shard in shards if shard in self._shards}

    async def deleted(self, after: str, limit: int) -> Sequence[str]:
        return sorted(name for name, guard in self._guards.items() if guard.deleted and name > after)[:limit]

    async def deleted_among(self, counters: Sequence[str]) -> Collection[str]:
        return {counter for counter in counters if self._guards.get(counter, Guard()).deleted}

    async def remove(self, counter: str) -> bool:
        guard = self._guards.get(counter, Guard())
        if not guard.deleted or self._held(counter):
            return False
        self.tick()
        self._guards = self._guards | {counter: guard._replace(version=self._time, deleted=False)}
        self._shards = {shard: count for shard, count in self._shards.items() if shard[0] != counter}
        self._configs = {name: number for name, number in self._configs.items() if name != counter}
        self._updated = {name: when for name, when in self._updated.items() if name != counter}
        return True

    def _held(self, counter: str) -> int:
        return sum(count for (name, _), count in self._shards.items() if name == counter)

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        names = sorted(name for name in self._configs if name.startswith(prefix) and name > after)
        return [name for name in names[:limit] if until is None or name <= until]

    async def names_with(self, part: str, prefix: str, after: str, limit: int) -> Sequence[str]:
        return [name for name in await self.names(prefix, after, len(self._configs)) if part in name][:limit]

    async def count(self, prefix: str, most: int) -> int:
        return min(sum(name.startswith(prefix) for name in self._configs), most)

    async def dead_names(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        names = {name for receipt in self._bodies.values() for name in receipt.counters}
        return sorted(name for name in names if name.startswith(prefix) and name > after)[:limit]

    async def largest(
        self, snapshot: Snapshot, prefixes: Sequence[str], limit: int, pending: Mapping[str, View]
    ) -> Sequence[str]:
        assert isinstance(snapshot, MemorySnapshot)
        dead = {name for receipt in snapshot.dead.values() for name in receipt.counters}
        there = snapshot.configs.keys() - pending.keys() - dead
        totals, _ = await snapshot.read([*there], ())
        kept = sorted((-total.value, name) for name, total in totals.items() if total.value or not total.guard.deleted)
        return [*pending] + [
            name
            for prefix in prefixes
            for name in [
                *[name for _, name in kept if name.startswith(prefix)][:limit],
                *[name for name in dead if name.startswith(prefix)],
            ]
        ]

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        expired = [key for key, receipt in self._receipts.items() if 0 < receipt.expires < now][:limit]
        self._carried = dict(self._carried)
        for key in expired:
            for counter, delta in read_note(self._receipts[key].note).sums.items():
                self._carried[counter] = self._carried.get(counter, 0) + delta
        self._receipts = {key: r for key, r in self._receipts.items() if key not in expired}
        self._buckets, gone = self._buckets.swept(now, limit - len(expired))
        return len(expired) + gone


class MemorySnapshot:
    """A snapshot: references to the state at one instant."""

    def __init__(
        self,
        time: Instant,
        as_of: WallSeconds,
        configs: Mapping[str, int],
        shards: Mapping[tuple[str, int], int],
        receipts: Mapping[str, Receipt],
        *,
        dead: Mapping[str, Receipt],
        guards: Mapping[str, Guard],
        buckets: MemoryBuckets | None = None,
        updated: Mapping[str, int] | None = None,
    ) -> None:
        self._updated = updated or {}
        self._buckets = buckets or MemoryBuckets()
        self.time = time
        self.as_of = as_of
        self.now = StoreMillis(int(as_of * 1_000))
        self.configs = configs
        self._shards = shards
        self._receipts = receipts
        self.dead = dead
        self._guards = guards

    async def read(
        self, counters: Sequence[str], receipts: Collection[str]
    ) -> tuple[Mapping[str, Total], Collection[str]]:
        totals = {}
        for counter in counters:
            num_shards = self.configs.get(counter, 0)
            value = sum(self._shards.get((counter, index), 0) for index in range(num_shards))
            its = [receipt for receipt in self.dead.values() if counter in receipt.counters]
            guard = self._guards.get(counter, Guard())
            dead = entries_of_dead(its, counter)
            totals[counter] = Total(value, num_shards, guard, *dead, updated=self._updated.get(counter, 0))
        ids = [key for total in totals.values() for key in ids_of(total.dead)]
        return totals, {key for key in (*receipts, *ids) if key in self._receipts and self._receipts[key].settled}

    async def counts(self, counter: str, by: str, begin: WallMillis, end: WallMillis) -> Counts:
        return self._buckets.counts(counter, by, begin, end)
