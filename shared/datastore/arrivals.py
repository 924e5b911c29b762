"""Writes what a copy brings into Datastore, beside the store's commits."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from shared.datastore.buckets import NAME, entity_adds, fill, followed_in, keep_followed
from shared.datastore.client import DatastoreClient
from shared.datastore.jobs import insert
from shared.datastore.keys import integer, name_of, version_of, write
from shared.model.buckets import BucketAdd, ByTime, Followed, followed_too
from shared.model.errors import AlreadyAppliedError, ContendedError
from shared.model.jobs import JobState
from shared.model.words import pages
from shared.runtime.retry import after_conflict, insist, tries

AT_ONCE: Final = 100
"""Entities in a commit. Each may hold 366 counts, some 10 kB."""
_TRIES: Final = 10


class DatastoreArrivals:
    """Implements `Arrivals`."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place

    async def follow(self, followed: Sequence[Followed]) -> None:
        async def once() -> None:
            found = await self._client.look_up_one(self._place.receipt(NAME))
            latest = max((one.until for one in followed), default=0)
            known = await followed_in(self._client, found, None, unknown=latest)
            for one in followed:
                known = followed_too(known, one)
            await keep_followed(self._client, found, known)

        await insist(once, ContendedError, tries(_TRIES), after_conflict())

    async def held(self, counts: Sequence[BucketAdd]) -> Sequence[int | None]:
        keys = [add.key for add in entity_adds(self._place, ByTime(tuple(counts)))]
        found = await self._client.find(keys)
        return [self._held(found, one) for one in counts]

    async def put(self, counts: Sequence[BucketAdd]) -> None:
        for some in pages(entity_adds(self._place, ByTime(tuple(counts))), AT_ONCE):

            async def once(some: Sequence[Any] = some) -> None:
                found = await self._client.find(add.key for add in some)
                request = self._client.commit_request()
                for add in some:
                    there = found.get(name_of(add.key))
                    before = self._place.entity(add.key) if there is None else there.entity
                    fill(write(request, before, version_of(there)), add)
                await self._client.commit_over(request)

            await insist(once, ContendedError, tries(_TRIES), after_conflict())

    async def keep(self, jobs: Sequence[JobState]) -> None:
        for job in jobs:
            with suppress(AlreadyAppliedError):
                await insert(self._client, job)

    def _held(self, found: Mapping[tuple[str, str], Any], one: BucketAdd) -> int | None:
        (add,) = entity_adds(self._place, ByTime((one,)))
        (name,) = add.sums
        there = found.get(name_of(add.key))
        return integer(there.entity, name) if there is not None and name in there.entity.properties else None
