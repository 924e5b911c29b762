"""Applies a commit blindly: one request without a read, in which the server itself adds."""

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from shared.google.datastore.buckets import BlindBuckets
from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.fleet import check_epoch
from shared.google.datastore.followed_rules import closed_within
from shared.google.datastore.guards import check, complete, depends
from shared.google.datastore.keys import COUNT, NUM_SHARDS, DatastorePlace, inexact, name_of, number_in, whole
from shared.google.datastore.mutations import by_name, only_over, transform
from shared.google.datastore.shards import Shard, ShardMemory, ShardState, is_big
from shared.google.datastore.sums import Sums
from shared.google.datastore.time import micros, millis
from shared.model.buckets import FOR_EVER, moved
from shared.model.errors import AlreadyAppliedError, ContendedError, LateError, ShardFullError, ShrunkError
from shared.model.times import Instant, StoreMillis
from shared.model.words import SHARD_FULL, Commit
from shared.runtime.backoff import Backoff
from shared.runtime.clock import Clock

_log = logging.getLogger(__name__)

_TRIES: Final = 10
"""How often a commit that depends on versions is tried while other processes are first."""
TRANSACTION: Final = 600_000
"""Milliseconds after which the server has surely closed a transaction: more than twice the documented limit."""
_ENDS: Final = (2**63 - 1, -(2**63))


class TransformWriter:
    """Applies commits. Never send a transform to a server that has not passed the probe."""

    def __init__(self, client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._clock = clock
        self._memory = ShardMemory()
        self._buckets = BlindBuckets(client, place)

    async def apply(self, commit: Commit) -> Instant:
        sums = Sums(commit)
        if not depends(commit) and not commit.revived and not any(map(is_big, sums.shards.values())):
            return await self._apply(commit, sums)
        backoff = Backoff(0.01, 0.5)
        for _ in range(_TRIES - 1):
            try:
                return await self._apply(commit, sums)
            except (AlreadyAppliedError, ContendedError) as error:
                await check(self._client, self._place, commit)
                if isinstance(error, AlreadyAppliedError) and not depends(commit):
                    raise
                await backoff.wait()
        return await self._apply(commit, sums)

    async def _apply(self, commit: Commit, sums: Sums) -> Instant:
        standings = await self._standings(sums)
        try:
            return await self._send(commit, sums, standings)
        except MissingError:
            # Some shard was deleted, and the server does not say which. So assume that none exists, and update none:
            # then this error cannot come again.
            for shard in sums.shards:
                self._memory.forget(shard)
            standings = await self._standings(sums)
            try:
                return await self._send(commit, sums, {s: one._replace(readable=False) for s, one in standings.items()})
            except MissingError as error:  # a dead receipt has just been swept
                raise ContendedError(str(error)) from error

    async def raise_shards(self, counter: str, num_shards: int, *, make: bool) -> int:
        request = self._client.commit_request()
        self._raise(request, counter, num_shards, make=make)
        try:
            response = await self._client.commit(request, updates=not make)
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
        place = self._place
        configs = {counter: place.config(counter) for counter, _ in shards}
        keys = {shard: place.shard(*shard) for shard in shards}
        entities = (await self._client.look_up([*configs.values(), *keys.values()])).entities
        found = by_name(entities)
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

    async def _send(self, commit: Commit, sums: Sums, standings: Mapping[Shard, ShardState]) -> Instant:
        request = self._client.commit_request()
        by_time = commit.by_time
        if commit.bounds.until is not None:
            request.transaction = await self._begin(commit.bounds.until)
        elif commit.bounds.epoch is not None or (by_time is not None and by_time.adds):
            request.transaction = await self._client.begin()
        if by_time is not None and by_time.adds:
            closed = await closed_within(self._client, self._place, request.transaction)
            by_time = by_time._replace(adds=tuple(moved(by_time.adds, closed, FOR_EVER)))
        for shard, delta in sums.shards.items():
            self._add(request, shard, delta, standings[shard])
        unsettled = {shard[0] for shard in sums.shards if not standings[shard].settled()}
        self._raise_all(request, unsettled, sums, standings)
        await complete(self._client, self._place, request, commit)
        buckets = await self._buckets.add(request, by_time)
        seen = bool(commit.revived) or depends(commit)
        updates = seen or any(standing.settled() for standing in standings.values())
        versions = seen or any(map(is_big, sums.shards.values())) or any(one.has_big() for one in buckets.values())
        if commit.bounds.epoch is not None:  # last, since others wait while the fleet is read and nothing is committed
            await check_epoch(self._client, self._place, request.transaction, commit.bounds.epoch)
        response = await self._client.commit(request, updates=updates, versions=versions)
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
        latest = StoreMillis(millis(self._client.time.bound(self._clock.monotonic())) + TRANSACTION)
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
            there = max(standings[shard].number for shard in sums.shards_of(counter))
            self._raise(request, counter, sums.number(counter, there))

    def _raise(self, request: Any, counter: str, num_shards: int, *, make: bool = True) -> None:
        raised = transform(request.mutations.add(), self._place.config(counter), NUM_SHARDS, update=not make)
        raised.maximum.integer_value = num_shards


def _held(value: Any) -> int:
    """What a shard holds. A value to which the server cannot add exactly counts as full, so that other shards are
    chosen.
    """
    return SHARD_FULL + 1 if inexact(value) else whole(value) or 0
