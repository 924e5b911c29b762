"""Keeps two entities among the receipts: which rules of counts by time flushers promised to follow, and until when; and
until when periods are closed.

A flusher promises after it took what it is about to commit. So an increment that is made after the end of a promise was
never committed under it, wherever a process was suspended.

A commit that adds to buckets reads in its transaction until when periods are closed. So either it comes before the
closing, and each later snapshot has it, or it adds to no closed period.
"""

from collections.abc import Sequence
from typing import Any, Final

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.errors import MissingError
from shared.google.datastore.keys import DatastorePlace, integer, unindexed
from shared.google.datastore.mutations import write
from shared.google.datastore.queries import query_of
from shared.model.buckets import FOR_EVER, HOUR, Followed, Rules, followed_of, followed_too, text_of
from shared.model.errors import AlreadyAppliedError, ContendedError
from shared.model.times import Instant, StoreMillis, WallMillis
from shared.runtime.backoff import Backoff, insist, tries

NAME: Final = "followed-rules"
RENEWED: Final = HOUR
"""Milliseconds after which a promise is renewed."""
FORCE: Final = RENEWED + HOUR
"""Milliseconds for which it holds. An hour of them is for clocks of ingests that are ahead."""
_ALL: Final = "followed"
CLOSED: Final = "closed-periods"
"""The name of the other entity, and of its property."""
_TRIES: Final = 10


class FollowedRules:
    """Makes the promises of one process. Flushers with the same rules share them."""

    def __init__(self, client: DatastoreClient, place: DatastorePlace) -> None:
        self._client = client
        self._place = place
        self._ours = Followed((), 0)

    async def promise(self, rules: Rules, now: StoreMillis) -> None:
        """Promise that commits follow these rules. `ContendedError` if another flusher promises at the same time."""
        if self._ours.rules != rules or self._ours.until < now + FORCE - RENEWED:
            self._ours = await self._promise(rules, now)

    async def _promise(self, rules: Rules, now: StoreMillis) -> Followed:
        found = (await self._client.look_up([self._place.receipt(NAME)])).entities
        there = await _followed(self._client, self._place, found, None, unknown=now + FORCE)
        for one in there if found else ():
            if one.rules == rules and one.until >= now + FORCE - RENEWED:
                return one
        ours = Followed(rules, now + FORCE)
        request = self._client.commit_request()
        entity = write(request, self._place.entity(self._place.receipt(NAME)), found[0].version if found else 0)
        unindexed(entity, _ALL).blob_value = text_of(followed_too(there, ours)).encode()
        try:
            await self._client.commit(request, updates=True, versions=True)
        except (AlreadyAppliedError, MissingError) as error:
            raise ContendedError(str(error)) from error
        return ours


async def followed_at(client: DatastoreClient, place: DatastorePlace, time: Instant) -> Sequence[Followed]:
    """Which rules were followed, as far as the store knew it at `time`."""
    found = (await client.look_up([place.receipt(NAME)], read_time=time)).entities
    return await _followed(client, place, found, time, unknown=FOR_EVER)


async def _followed(
    client: DatastoreClient, place: DatastorePlace, found: Sequence[Any], time: Instant | None, *, unknown: int
) -> Sequence[Followed]:
    """`unknown`: until when no rules were followed if there are counts, and nobody has ever promised anything. They are
    of another application.
    """
    if found:
        return followed_of(found[0].entity.properties[_ALL].blob_value)
    query = query_of(place.kinds.shard, 1, keys_only=True)
    async for page in client.pages(place.partition, query, read_time=time):
        if page:
            return [Followed((), unknown)]
    return []


async def closed_at(client: DatastoreClient, place: DatastorePlace, time: Instant) -> WallMillis:
    """Until when periods are closed, as the store knew it at `time`."""
    return _closed((await client.look_up([place.receipt(CLOSED)], read_time=time)).entities)


async def closed_within(client: DatastoreClient, place: DatastorePlace, transaction: bytes) -> WallMillis:
    """Until when periods are closed. If that changes before the transaction is committed, its commit fails."""
    return _closed(await client.look_up_within(transaction, [place.receipt(CLOSED)]))


async def close(client: DatastoreClient, place: DatastorePlace, until: WallMillis) -> None:
    """See `Periods`."""

    async def once() -> None:
        found = (await client.look_up([place.receipt(CLOSED)])).entities
        if until <= _closed(found):
            return
        request = client.commit_request()
        entity = write(request, place.entity(place.receipt(CLOSED)), found[0].version if found else 0)
        unindexed(entity, CLOSED).integer_value = until
        try:
            await client.commit(request, updates=True, versions=True)
        except (AlreadyAppliedError, MissingError) as error:
            raise ContendedError(str(error)) from error

    await insist(once, ContendedError, tries(_TRIES), Backoff(0.01, 0.5))


def _closed(found: Sequence[Any]) -> WallMillis:
    return integer(found[0].entity, CLOSED) if found else 0
