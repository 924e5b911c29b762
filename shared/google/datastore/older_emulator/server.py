"""The older emulator, where it differs from Google's servers. The docstring of this folder says how, and why."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

from shared.google.datastore.keys import name_of
from shared.google.datastore.older_emulator.snapshot import AgreeingSnapshot
from shared.google.datastore.server import DatastoreServer
from shared.google.datastore.snapshot import LastShardNumbers
from shared.model.times import Instant, StoreMillis
from shared.ports.readings import Snapshot

MOST_INT32: Final = 2**31 - 1


class OlderEmulator(DatastoreServer):
    """Each method does what `DatastoreServer` promises, as far as this emulator allows it."""

    transforms = False
    described = "sums are added by reading and writing back; reads are not exact while anything is pending"

    async def now(self) -> StoreMillis:
        """The time of this machine."""
        return StoreMillis(int(self._clock.now() * 1_000))

    def instant(self, time: Instant) -> Instant | None:  # noqa: ARG002 (it has versions only)
        return None

    async def snapshot(self, numbers: LastShardNumbers) -> Snapshot:
        time = await self.ask_time()
        await asyncio.sleep(self._client.lag)
        return AgreeingSnapshot(self._client, self._place, numbers, time, self._clock.now())

    async def ages(self, shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:  # noqa: ARG002
        return {}

    async def names(self, query: Any, prefix: str, after: str, until: str | None) -> Sequence[str]:
        """Reads all names that the query finds, and keeps the first `limit` of them."""
        limit, query.limit.value = query.limit.value, MOST_INT32
        names = (name_of(one.entity.key)[1] for one in await self._client.query(self._place.partition, query))
        inside = (name for name in names if name.startswith(prefix) and name > after)
        return nsmallest(limit, (name for name in inside if until is None or name <= until))

    async def count(self, query: Any, prefix: str, most: int) -> int:
        """Counts the names one by one: a range of them would be in the wrong order."""
        query.limit.value = most
        return len(await self.names(query, prefix, "", None))
