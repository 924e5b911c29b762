"""Refuses a server that can't add to a number by itself: the older emulator ignores transforms and erases entities."""

import logging
from typing import Any, Final
from uuid import uuid4

from shared.datastore.client import DatastoreClient
from shared.datastore.keys import COUNT, PROBE, integer, transform
from shared.model.buckets import HOUR, StoreMillis
from shared.model.errors import CountersinkError, SettingsError
from shared.model.words import Receipt

_log = logging.getLogger(__name__)

OLDER: Final = (
    "the server of datastore://{} ignores property transforms, as the older Datastore emulator does, and would lose"
    " counts: start the other emulator, `gcloud emulators firestore start --database-mode=datastore-mode`, and set"
    " DATASTORE_EMULATOR_HOST to its address"
)
_SCRATCH_LIVES: Final = HOUR
"""Milliseconds until the scratch entity expires. It is deleted at once, or, if that fails, with old receipts."""


async def probe(client: DatastoreClient) -> None:
    """Add 2 to the 40 in a scratch entity that has other properties too, and look at the result. Raise `SettingsError`
    if the server did not add, or erased the other properties.
    """
    place, expires = client.place, StoreMillis(int(client.clock.now() * 1_000) + _SCRATCH_LIVES)
    scratch = place.receipt_entity(Receipt(f"{PROBE}{uuid4().hex}", expires, "probe"))
    scratch.properties[COUNT].integer_value = 40
    await _commit(client, "insert", scratch)  # if the server is away it fails here, and there is nothing to delete
    try:
        if not await _adds(client, scratch):
            raise SettingsError(OLDER.format("/".join(filter(None, (place.project, place.database)))))
    finally:
        try:
            await _commit(client, "delete", scratch.key)
        except CountersinkError as error:
            _log.warning("the scratch entity of the probe could not be deleted; it expires within the hour: %s", error)


async def _adds(client: DatastoreClient, scratch: Any) -> bool:
    request = client.commit_request()
    transform(request.mutations.add(), scratch.key, COUNT, update=True).increment.integer_value = 2
    await client.commit(request)
    entity = (await client.look_up_one(scratch.key)).entity
    return len(entity.properties) == len(scratch.properties) and integer(entity, COUNT) == 42  # noqa: PLR2004


async def _commit(client: DatastoreClient, what: str, value: Any) -> None:
    request = client.commit_request()
    getattr(request.mutations.add(), what).CopyFrom(value)
    await client.commit(request)
