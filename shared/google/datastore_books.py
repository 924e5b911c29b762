"""All that the store in Datastore holds, kind by kind, at an instant of the server's clock if it can read one."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from google.cloud.datastore_v1.types import query as _types

from shared.google.datastore_client import DatastoreClient
from shared.google.datastore_keys import COUNT, NUM_SHARDS, Place, integer, name_of, receipt_of, shard_of
from shared.google.datastore_time import micros
from shared.words import Config, Kept, Shard

PAGE: Final = 500


class DatastoreBooks:
    """Each entity is read once, and paid for. Others may have put into these kinds what is no counter: it is passed."""

    def __init__(self, client: DatastoreClient, place: Place, time: int | None) -> None:
        """`time` in micros; without one, what is written meanwhile may be seen in part."""
        self.exact = time is not None
        self._client = client
        self._place = place
        self._time = time

    async def receipts(self) -> AsyncIterator[Sequence[Kept]]:
        async for results in self._pages(self._place.kinds.receipt):
            yield [Kept(receipt_of(one.entity), self._written(one)) for one in results]

    async def configs(self) -> AsyncIterator[Sequence[Config]]:
        async for results in self._pages(self._place.kinds.config):
            yield [
                Config(name_of(one.entity.key)[1], integer(one.entity, NUM_SHARDS), 0, micros(one.create_time) / 1e6)
                for one in results
            ]

    async def shards(self) -> AsyncIterator[Sequence[Shard]]:
        async for results in self._pages(self._place.kinds.shard):
            of = [(shard_of(one.entity.key), one) for one in results]
            yield [
                Shard(*shard, integer(one.entity, COUNT), self._written(one)) for shard, one in of if shard is not None
            ]

    async def _pages(self, kind: str) -> AsyncIterator[Sequence[Any]]:
        query = _types.Query.pb()()
        query.kind.add().name = kind
        query.order.add(direction=1).property.name = "__key__"
        query.limit.value = PAGE
        partition = self._place.receipt("").partition_id
        async for results in self._client.pages(partition, query, read_time=self._time):
            yield [one for one in results if name_of(one.entity.key)[1]]

    def _written(self, result: Any) -> int:
        """As `apply` tells the time of commits: the older emulator has versions only."""
        return micros(result.update_time) if self.exact else int(result.version)
