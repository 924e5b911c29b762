"""Applies a commit blindly: one request without a read, in which the server itself adds; guards and import marks,
too.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from google.cloud.datastore_v1.types import entity as _entity

from shared.datastore.buckets import BlindBuckets, closed_at
from shared.datastore.client import DatastoreClient, MissingError, micros, millis
from shared.datastore.feed import owe
from shared.datastore.fleet import check_epoch
from shared.datastore.keys import (
    COUNT,
    DEAD,
    DELETED,
    LAST,
    NUM_SHARDS,
    DatastorePlace,
    Key,
    inexact,
    name_of,
    number_in,
    only_over,
    transform,
    unindexed,
    version_of,
    whole,
    write,
)
from shared.datastore.shards import Shard, ShardMemory, ShardState, is_big
from shared.datastore.snapshot import revive
from shared.datastore.thresholds import note
from shared.model.buckets import FOR_EVER, Instant, StoreMillis, moved
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    ContendedError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
)
from shared.model.feed import NOTHING, Told
from shared.model.words import SHARD_FULL, Commit, Guard, Mark, ShardAdd, number_for, was_compacted
from shared.runtime.retry import after_conflict

# Adds up what a commit adds to each shard, because a request may contain each key only once. Pure.


_END: Final = 2**63 - 1


class Sums:
    """One sum for each shard, and how many shards each counter must have."""

    def __init__(self, commit: Commit) -> None:
        if commit.repeats():
            raise AlreadyAppliedError("this commit contains a receipt twice")
        self.shards: dict[Shard, int] = {}
        self.adds: dict[str, list[ShardAdd]] = {}
        for add in commit.adds:
            shard = (add.counter, add.shard)
            self.shards[shard] = self.shards.get(shard, 0) + add.delta
            self.adds.setdefault(add.counter, []).append(add)
        if any(abs(delta) > _END for delta in self.shards.values()):
            raise RefusedError("a sum does not fit into 64 bits")

    def number(self, counter: str, there: int) -> int:
        """How many shards a counter must have, if it has `there` now (0: no config) and one to add to is missing."""
        return max(number_for(add, there) for add in self.adds[counter])

    def shrunk(self, shard: Shard, there: int) -> bool:
        """Whether a shard that is missing was removed by a compaction."""
        counter, index = shard
        return any(add.shard == index and was_compacted(add, there) for add in self.adds[counter])


# Moves the marks of imports in Datastore: only over the version that was read, or the commit fails.


SOURCE: Final = "source"
COUNTER: Final = "counter"
TOTAL: Final = "total"
_Entity: Final = _entity.Entity.pb()


async def find(client: DatastoreClient, source: str, counters: Sequence[str]) -> Mapping[str, int]:
    found = await client.look_up(_key(client.place, source, counter) for counter in dict.fromkeys(counters))
    return {one.entity.properties[COUNTER].string_value: _total(one.entity) for one in found.entities}


async def move(client: DatastoreClient, request: Any, marks: Sequence[Mark]) -> None:
    """Add the moves to the request. `ChangedError` if a mark does not hold the number that the import saw."""
    if not marks:
        return
    keys = {mark: _key(client.place, mark.source, mark.counter) for mark in marks}
    found = await client.find(keys.values())
    for mark, key in keys.items():
        one = found.get(name_of(key))
        if (_total(one.entity) if one else 0) != mark.seen:
            raise ChangedError(f"{mark.counter} has been imported meanwhile")
        write(request, _made(key, mark), version_of(one))


def _key(place: DatastorePlace, source: str, counter: str) -> Key:
    """A hash of both, as a key name has room for little more than one of them. The length keeps them apart."""
    return place.key(place.kinds.mark, sha256(f"{len(source)}:{source}{counter}".encode()).hexdigest())


def mark_in(entity: Any) -> Mark:
    properties = entity.properties
    return Mark(properties[SOURCE].string_value, properties[COUNTER].string_value, 0, _total(entity))


def _total(entity: Any) -> int:
    value = entity.properties[TOTAL]
    return int(value.blob_value or value.integer_value)


def _made(key: Key, mark: Mark) -> Any:
    entity = _Entity(key=key)
    entity.properties[SOURCE].string_value = mark.source
    entity.properties[COUNTER].string_value = mark.counter
    if isinstance(total := mark.kept(mark.total), bytes):
        entity.properties[TOTAL].blob_value = total
    else:
        entity.properties[TOTAL].integer_value = total
    for value in entity.properties.values():
        value.exclude_from_indexes = True
    return entity


# Changes the guards of counters: sets, over the version that they read, and dead receipts, which mark them.


async def guard(client: DatastoreClient, request: Any, commit: Commit) -> str:
    """Add to the request what the commit changes in guards. Returns the receipt of the set before, if this is a set.

    A set changes the guard of its counter over the version that it read, or the commit fails. A dead receipt with a
    body marks the guards of its counters. A mark is never removed, so a marked guard is left alone: dead letters make a
    set start over at most once per counter.
    """
    marked = _marked(commit)
    counters = {*marked, *(commit.guard or ())[:1]}
    if not counters:
        return ""
    set_before = ""
    keys = {counter: client.place.guard(counter) for counter in sorted(counters)}
    found = await client.find(keys.values())
    for counter, key in keys.items():
        there = found.get(name_of(key))
        entity = client.place.entity(key)
        if there is not None:
            entity.CopyFrom(there.entity)
        version = version_of(there)
        if commit.guard is not None and commit.guard[0] == counter:
            version = commit.guard[1].version
            entity.properties[DELETED].boolean_value = commit.guard[1].deleted
            set_before = entity.properties[LAST].string_value
            # The guard names the set, because a write that changes nothing would keep the version.
            unindexed(entity, LAST).string_value = commit.receipts[0].key
        elif DEAD in entity.properties:
            continue
        if counter in marked:
            entity.properties[DEAD].boolean_value = True
        write(request, entity, version)
    return set_before


def depends(commit: Commit) -> bool:
    """Whether the commit applies only over versions that were read."""
    return commit.guard is not None or bool(commit.marks) or bool(_marked(commit))


def _marked(commit: Commit) -> Collection[str]:
    """The counters that are named in dead receipts of this commit."""
    return {counter for receipt in (*commit.receipts, *commit.revived) for counter in receipt.counters}


async def check(client: DatastoreClient, commit: Commit) -> None:
    """Raise the reason why such a commit failed, if it was a receipt or the guard. The server does not always say."""
    if not depends(commit):
        return
    counter, (seen, _) = commit.guard or ("", Guard())
    place = client.place
    guarded = [place.guard(counter)] if commit.guard else []
    found = (await client.look_up([*guarded, *(place.receipt(receipt.key) for receipt in commit.receipts)])).entities
    guards = [one.version for one in found if one.entity.key.path[-1].kind == place.kinds.guard]
    if len(found) > len(guards):
        raise AlreadyAppliedError("a receipt of this commit exists")
    if [seen or None] != (guards or [None]):
        raise ChangedError(f"{counter} has been set meanwhile")


_log = logging.getLogger(__name__)

_TRIES: Final = 10
"""How often a commit that depends on versions is tried while other processes are first."""
TRANSACTION: Final = 600_000
"""Milliseconds after which the server has surely closed a transaction: more than twice the documented limit."""
_ENDS: Final = (2**63 - 1, -(2**63))


class TransformWriter:
    """Applies commits. Never send a transform to a server that has not passed the probe."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place
        self._clock = client.clock
        self._memory = ShardMemory()
        self._buckets = BlindBuckets(client)

    async def apply(self, commit: Commit, told: Told = NOTHING) -> Instant:
        """`told`: the rules by which the commit owes what it changes to the receiver of the feed."""
        sums = Sums(commit)
        if not depends(commit) and not commit.revived and not any(map(is_big, sums.shards.values())):
            return await self._apply(commit, sums, told)
        backoff = after_conflict()
        for _ in range(_TRIES - 1):
            try:
                return await self._apply(commit, sums, told)
            except (AlreadyAppliedError, ContendedError) as error:
                await check(self._client, commit)
                if isinstance(error, AlreadyAppliedError) and not depends(commit):
                    raise
                await backoff.wait()
        return await self._apply(commit, sums, told)

    async def _apply(self, commit: Commit, sums: Sums, told: Told) -> Instant:
        standings = await self._standings(sums)
        try:
            return await self._send(commit, sums, standings, told)
        except MissingError:
            # Some shard was deleted, and the server does not say which. So assume that none exists, and update none:
            # then this error cannot come again.
            for shard in sums.shards:
                self._memory.forget(shard)
            standings = await self._standings(sums)
            try:
                unread = {shard: one._replace(readable=False) for shard, one in standings.items()}
                return await self._send(commit, sums, unread, told)
            except MissingError as error:  # a dead receipt has just been swept
                raise ContendedError(str(error)) from error

    def note_absent(self, counters: Iterable[str]) -> None:
        """These counters have no config."""
        self._memory.note_absent(counters, self._clock.monotonic())

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool) -> int:
        request = self._client.commit_request()
        self._raise(request, counter, num_shards, make=make)
        try:
            response = await self._client.commit(request)
        except MissingError:
            return 0
        return int(response.mutation_results[0].transform_results[0].integer_value)

    async def _standings(self, sums: Sums) -> dict[Shard, ShardState]:
        """The states of all shards. A shard that was not seen lately is looked up. A shard of a big sum always is, and
        it is made if it is missing.
        """
        now = self._clock.monotonic()
        known = {shard: None if is_big(delta) else self._memory.get(shard, now) for shard, delta in sums.shards.items()}
        standings = {shard: standing for shard, standing in known.items() if standing}
        if unknown := [shard for shard, standing in known.items() if standing is None]:
            standings |= await self._look(unknown, sums)
        if absent := [shard for shard in unknown if is_big(sums.shards[shard]) and not standings[shard].settled()]:
            await self._make(absent, sums, standings)
            standings |= await self._look(absent, sums)
        full = [shard for shard, delta in sums.shards.items() if standings[shard].full(delta)]
        if full:
            for shard in full:
                self._memory.forget(shard)  # others may empty it, and then it must not count as full
            raise ShardFullError(full)
        return standings

    async def _look(self, shards: Collection[Shard], sums: Sums) -> dict[Shard, ShardState]:
        configs = {counter: self._place.config(counter) for counter, _ in shards}
        keys = {shard: self._place.shard(*shard) for shard in shards}
        found = await self._client.find([*configs.values(), *keys.values()])
        standings = {}
        for shard, key in keys.items():
            config, one = found.get(name_of(configs[shard[0]])), found.get(name_of(key))
            number = number_in(config)
            held, version = (_held(one.entity.properties[COUNT]), one.version) if one else (0, 0)
            standings[shard] = ShardState(held, version, one is not None and number > shard[1], number)
            self._memory.note(shard, standings[shard], self._clock.monotonic())
        if shrunk := {
            one[0] for one in shards if not standings[one].version and sums.shrunk(one, standings[one].number)
        }:
            raise ShrunkError(shrunk)
        return standings

    async def _make(self, shards: Collection[Shard], sums: Sums, standings: Mapping[Shard, ShardState]) -> None:
        request = self._client.commit_request()
        for shard in shards:
            self._add(request, shard, 0, ShardState())
        self._raise_all(request, {counter for counter, _ in shards}, sums, standings)
        await self._client.commit(request)

    async def _send(self, commit: Commit, sums: Sums, standings: Mapping[Shard, ShardState], told: Told) -> Instant:
        request = self._client.commit_request()
        by_time = commit.by_time
        if commit.bounds.until is not None:
            request.transaction = await self._begin(commit.bounds.until)
        elif commit.bounds.epoch is not None or (by_time is not None and by_time.adds):
            request.transaction = await self._client.begin()
        if by_time is not None and by_time.adds:
            closed = await closed_at(self._client, transaction=request.transaction)
            by_time = by_time._replace(adds=tuple(moved(by_time.adds, closed, FOR_EVER)))
        for shard, delta in sums.shards.items():
            self._add(request, shard, delta, standings[shard])
        unsettled = {shard[0] for shard in sums.shards if not standings[shard].settled()}
        self._raise_all(request, unsettled, sums, standings)
        owe(request, self._place, sums.shards, told)
        for receipt in commit.receipts:
            request.mutations.add().insert.CopyFrom(self._place.receipt_entity(receipt))
        await revive(self._client, request, commit.revived)
        note(request, self._place, commit, told, await guard(self._client, request, commit))
        await move(self._client, request, commit.marks)
        buckets = await self._buckets.add(request, by_time)
        if commit.bounds.epoch is not None:  # last, since others wait while the fleet is read and nothing is committed
            await check_epoch(self._client, request.transaction, commit.bounds.epoch)
        response = await self._client.commit(request)
        self._buckets.learn(response, buckets)
        now = self._clock.monotonic()
        for shard, result in zip(sums.shards, response.mutation_results, strict=False):  # the shards come first
            count = _held(result.transform_results[0])
            if count in _ENDS:
                _log.critical("shard %s is beyond 64 bits; another application must have added to it", shard)
            self._memory.note(shard, ShardState(count, result.version, readable=True), now)
        return micros(response.commit_time)

    async def _begin(self, until: StoreMillis) -> bytes:
        """Begin a transaction that the server closes before `until`, or raise `LateError`. The time is judged after it
        was begun, so the process may be suspended anywhere.
        """
        transaction = await self._client.begin()
        latest = StoreMillis(millis(self._client.told()) + TRANSACTION)
        if latest > until:
            raise LateError(latest)
        return transaction

    def _add(self, request: Any, shard: Shard, delta: int, standing: ShardState) -> None:
        mutation = request.mutations.add()
        added = transform(mutation, self._place.shard(*shard), COUNT, update=standing.settled())
        added.increment.integer_value = delta
        if is_big(delta):
            only_over(standing.version, mutation)

    def _raise_all(
        self, request: Any, counters: Collection[str], sums: Sums, standings: Mapping[Shard, ShardState]
    ) -> None:
        for counter in counters:
            there = max(standings[counter, add.shard].number for add in sums.adds[counter])
            self._raise(request, counter, sums.number(counter, there))

    def _raise(self, request: Any, counter: str, num_shards: int, *, make: bool = True) -> None:
        raised = transform(request.mutations.add(), self._place.config(counter), NUM_SHARDS, update=not make)
        raised.maximum.integer_value = num_shards


def _held(value: Any) -> int:
    """What a shard holds. A value to which the server cannot add exactly counts as full, so that other shards are
    chosen.
    """
    return SHARD_FULL + 1 if inexact(value) else whole(value) or 0
