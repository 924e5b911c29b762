"""Keeps the record of the fleet in Datastore: one entity, which is changed only over the version that was read."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from shared.datastore.client import DatastoreClient, micros
from shared.datastore.keys import PROBE, DatastorePlace, Key, query_of, unindexed, write
from shared.model.buckets import BEGINNING, StoreMillis
from shared.model.errors import ChangedError, ContendedError, TransientError
from shared.model.fleet import NONE, Fleet, first, read, written
from shared.ports.store import FleetLook, Left
from shared.runtime.retry import Backoff, insist, tries

TRIES: Final = 20
MOST_PROBES: Final = 100
"""Processes that may start on a new store at the same time. With more, it counts as used before."""
_NAME: Final = "fleet"
_DATA: Final = "data"


def fleet_key(place: DatastorePlace) -> Key:
    return place.key(place.kinds.fleet, _NAME)


def _left_key(place: DatastorePlace, member: str) -> Key:
    return place.key(place.kinds.fleet, f"left by {member}")


async def check_epoch(client: DatastoreClient, transaction: bytes, nonce: str) -> None:
    """Raise `ChangedError` unless the fleet names the overlay with this nonce, and does so when the transaction
    commits.
    """
    found = await client.look_up_one(fleet_key(client.place), transaction=transaction)
    overlay = _fleet_in(found).overlay if found else NONE
    if overlay.nonce == nonce:
        return
    with suppress(TransientError):
        await client.rollback(transaction)
    raise ChangedError("the fleet has named another overlay meanwhile")


def _fleet_in(found: Any) -> Fleet:
    return read(bytes(found.entity.properties[_DATA].blob_value))


class DatastoreFleetBook:
    """The entity takes about one write a second, so a hundred processes that start together wait for each other."""

    def __init__(self, client: DatastoreClient) -> None:
        self._client = client
        self._place = client.place

    async def look(self) -> FleetLook:
        return (await self._look())[0]

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        unchanged = await insist(partial(self._try, step, left), ContendedError, tries(TRIES), Backoff(0.02, 2.0))
        return unchanged or await self.look()

    async def left_by(self, member: str) -> Collection[str] | None:
        found = await self._client.look_up_one(_left_key(self._place, member))
        return bytes(found.entity.properties[_DATA].blob_value).decode().split() if found else None

    async def _try(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None) -> FleetLook | None:
        """Take the step once. Return what was seen if it changes nothing; None after a change."""
        look, version = await self._look()
        before = look.fleet
        if not version:
            before = first(look.now, used=await self._used())
        after = step(before, look.now)
        if after is None:
            return look
        try:
            forgotten = [name for name, one in before.members.items() if one.listed and name not in after.members]
            await self._write(replace(after, version=before.version + 1), version, left, forgotten)
        except ContendedError as error:
            raise ContendedError(f"the entity of the fleet is contended: {error}") from error
        return None

    async def _used(self) -> bool:
        """Whether the store holds any receipt. The probes of processes that start at the same time are none."""
        query = query_of(self._place.kinds.receipt, MOST_PROBES + 1, keys_only=True)
        names = await self._client.names(query)
        return len(names) > MOST_PROBES or not all(name.startswith(PROBE) for name in names)

    async def _look(self) -> tuple[FleetLook, int]:
        """The fleet, and the version of its entity; 0 if there is none."""
        found = await self._client.look_up_one(fleet_key(self._place))
        told = self._client.told()
        now = StoreMillis(told // 1000 if told else int(self._client.clock.now() * 1000))
        if found is None:
            return FleetLook(Fleet(), BEGINNING, now), 0
        return FleetLook(_fleet_in(found), micros(found.update_time), now), int(found.version)

    async def _write(self, fleet: Fleet, over: int, left: Left | None, forgotten: Collection[str]) -> None:
        request = self._client.commit_request()
        unindexed(write(request, self._place.entity(fleet_key(self._place)), over), _DATA).blob_value = written(fleet)
        if left is not None:
            entity = self._place.entity(_left_key(self._place, left.member))
            unindexed(entity, _DATA).blob_value = " ".join(left.receipts).encode()
            request.mutations.add().upsert.CopyFrom(entity)
        for member in forgotten:
            request.mutations.add().delete.CopyFrom(_left_key(self._place, member))
        await self._client.commit_over(request)
