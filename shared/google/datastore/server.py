"""What the server tells: its time, snapshots at an instant, the ages of shards, and names in their order."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace, name_of
from shared.google.datastore.queries import KEY, Operator, where
from shared.google.datastore.snapshot import LastShardNumbers, PastSnapshot
from shared.google.datastore.time import micros, millis
from shared.model.ranges import last_name
from shared.model.times import Instant, StoreMillis
from shared.ports.readings import Snapshot
from shared.runtime.clock import Clock

FIRST: Final = "\x00"
HEARD: Final = 30.0
"""Seconds. If no response has told the server's time for longer, `now` asks for it."""
STALE: Final = 1.0
"""Seconds. If no response has told the server's time for longer, `snapshot` asks for it, so that it is not too old."""


class DatastoreServer:
    """Google's servers, and the Firestore emulator in Datastore mode."""

    def __init__(self, client: DatastoreClient, place: DatastorePlace, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._clock = clock

    async def now(self) -> StoreMillis:
        """The server's time: the last that it told, plus what has passed since."""
        time = self._client.time
        if time.age(self._clock.monotonic()) > HEARD:
            await self.ask_time()
        return millis(time.bound(self._clock.monotonic()))

    async def ask_time(self) -> Instant:
        """The instant of a look that begins now."""
        return (await self._client.look_up([self._place.nothing()])).time

    async def snapshot(self, numbers: LastShardNumbers) -> Snapshot:
        time = self._client.time
        if time.age(self._clock.monotonic()) > STALE:
            await self.ask_time()
        return PastSnapshot(self._client, self._place, numbers, time.bound(self._clock.monotonic()), time.doubt)

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        """Seconds since each shard was written, by the server's clock alone. Shards that do not exist are left out."""
        names = {name_of(self._place.shard(*shard)): shard for shard in shards}
        found = await self._client.look_up(self._place.shard(*shard) for shard in names.values())
        return {names[name_of(one.entity.key)]: (found.time - micros(one.update_time)) / 1e6 for one in found.entities}

    async def names(self, query: Any, prefix: str, after: str, until: str | None) -> Sequence[str]:
        """The first names that the query finds within these bounds, as many as its limit, in the order of their bytes.

        The query is one for keys, in their order, and is changed.
        """
        self._bound(query, prefix, after, until)
        return [name_of(one.entity.key)[1] for one in await self._client.query(self._place.partition, query)]

    async def count(self, query: Any, prefix: str, most: int) -> int:
        """How many names that begin with the prefix the query finds; `most` if there are more. The query is changed."""
        self._bound(query, prefix, "", None)
        return await self._client.count(self._place.partition, query, most)

    def _bound(self, query: Any, prefix: str, after: str, until: str | None) -> None:
        kind = query.kind[0].name
        # One lower bound: the later of the two. Bytes of UTF-8 are in the order of code points, as strings are here.
        begin, operator = (
            (after, Operator.GREATER_THAN) if after >= prefix else (prefix, Operator.GREATER_THAN_OR_EQUAL)
        )
        # Without a lower bound the query would also find entities of others that have numbers for names.
        where(query, KEY, operator, key_value=self._place.key(kind, begin or FIRST))
        where(query, KEY, Operator.LESS_THAN_OR_EQUAL, key_value=self._place.key(kind, last_name(prefix, until)))
