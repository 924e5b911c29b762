"""Reads everything that the store holds in Datastore, kind by kind, at one instant."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from shared.datastore import buckets
from shared.datastore.buckets import followed_at
from shared.datastore.client import DatastoreClient, micros
from shared.datastore.keys import (
    COUNT,
    KEY,
    LAST,
    NUM_SHARDS,
    DatastorePlace,
    Key,
    flaw_of,
    integer,
    name_of,
    query_of,
    receipt_of,
    shard_of,
)
from shared.model.buckets import Followed, Instant, WallSeconds
from shared.ports.store import BucketShard, Config, Shard, StoredReceipt

PAGE: Final = 500
PAGE_OF_BUCKETS: Final = 50
"""Entities that may each have 366 counts."""


class DatastoreAuditData:
    """Reads every entity, which Google charges for: with each config also its guard, with each guard also its config.

    Entities of these kinds that are not Countersink's are skipped.
    """

    def __init__(self, client: DatastoreClient, place: DatastorePlace, time: Instant) -> None:
        self._client = client
        self._place = place
        self._time = time

    async def receipts(self) -> AsyncIterator[Sequence[StoredReceipt]]:
        async for results in self._pages(self._place.kinds.receipt):
            yield [StoredReceipt(receipt_of(one.entity), micros(one.update_time)) for one in results]

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        """A config that is younger than the guard of a set was made again, so the age of its counter is not known. A
        guard may also exist without a set: it then holds the mark of a dead receipt.
        """
        place = self._place
        async for results in self._pages(place.kinds.config):
            names = [name_of(one.entity.key)[1] for one in results]
            found = await self._look(map(place.guard, names))
            guards = {name: one for name, one in found.items() if LAST in one.entity.properties}
            configs = []
            for name, one in zip(names, results, strict=True):
                since = micros(one.create_time)
                anew = name in guards and micros(guards[name].create_time) < since
                number, flaw = integer(one.entity, NUM_SHARDS), flaw_of(one.entity, NUM_SHARDS)
                configs.append(Config(name, number, 0, WallSeconds(0 if anew else since / 1e6), flaw))
            yield configs
        async for results in self._pages(place.kinds.guard):
            names = [name_of(one.entity.key)[1] for one in results if LAST in one.entity.properties]
            there = await self._look(map(place.config, names))
            yield [Config(name, 0, 0, WallSeconds(0)) for name in names if name not in there]

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async for results in self._pages(self._place.kinds.shard):
            of = [(shard_of(one.entity.key), one) for one in results]
            yield [
                Shard(*shard, integer(one.entity, COUNT), micros(one.update_time), flaw_of(one.entity, COUNT))
                for shard, one in of
                if shard is not None
            ]

    async def buckets(self) -> AsyncIterator[Sequence[BucketShard]]:
        async for results in self._pages(self._place.kinds.buckets, PAGE_OF_BUCKETS):
            yield [bucket for one in results for bucket in buckets.shards_in(one.entity)]

    async def followed(self) -> Sequence[Followed]:
        return await followed_at(self._client, self._place, self._time)

    async def _look(self, keys: Iterable[Key]) -> Mapping[str, Any]:
        found = (await self._client.look_up(keys, read_time=self._time)).entities
        return {name_of(one.entity.key)[1]: one for one in found}

    async def _pages(self, kind: str, size: int = PAGE) -> AsyncIterator[Sequence[Any]]:
        query = query_of(kind, size, order=KEY)
        partition = self._place.partition
        async for results in self._client.pages(partition, query, read_time=self._time):
            yield [one for one in results if name_of(one.entity.key)[1]]
