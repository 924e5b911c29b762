"""Changes dead receipts, each only over the version that was read, or the commit fails."""

from collections.abc import Sequence
from typing import Any

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.keys import DatastorePlace, receipt_of
from shared.google.datastore.mutations import write
from shared.model.errors import AlreadyAppliedError
from shared.model.words import Receipt


async def revive(client: DatastoreClient, place: DatastorePlace, request: Any, revived: Sequence[Receipt]) -> None:
    """Add the changes to the request. `AlreadyAppliedError` if one of the receipts does not exist, or is not dead."""
    if not revived:
        return
    found = (await client.look_up(place.receipt(receipt.key) for receipt in revived)).entities
    there = {before.key: (before, one.version) for one in found if (before := receipt_of(one.entity)).state == "dead"}
    if len(there) < len(revived):
        raise AlreadyAppliedError("a receipt to be revived is not dead")
    for receipt in revived:
        before, version = there[receipt.key]
        write(request, place.receipt_entity(receipt.over(before)), version)
