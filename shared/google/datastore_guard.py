"""Owns the guard of a counter that is set: changed over the very version that was seen, or the commit fails."""

from typing import Any

from shared.errors import AlreadyAppliedError, ChangedError
from shared.google.datastore_client import DatastoreClient, only_over
from shared.google.datastore_keys import Place
from shared.words import Commit, Guard


def guard(place: Place, request: Any, commit: Commit) -> None:
    """Add its change to the request."""
    if commit.guard is None:
        return
    counter, (seen, deleted) = commit.guard
    # Which set it was stands in it: a write that changed nothing would leave the version.
    entity = place.guard_entity(counter, last=commit.receipts[0].key, deleted=deleted)
    mutation = request.mutations.add()
    if not seen:
        mutation.insert.CopyFrom(entity)
        return
    mutation.update.CopyFrom(entity)
    only_over(seen, mutation)


def depends(commit: Commit) -> bool:
    """Whether it is applied only over what was seen."""
    return commit.guard is not None or bool(commit.marks)


async def check(client: DatastoreClient, place: Place, commit: Commit) -> None:
    """Raise why such a commit failed, if it was for its receipts or its guard; the server does not always say."""
    if not depends(commit):
        return
    counter, (seen, _) = commit.guard or ("", Guard())
    guarded = [place.guard(counter)] if commit.guard else []
    found = (await client.look_up([*guarded, *(place.receipt(receipt.key) for receipt in commit.receipts)])).entities
    guards = [one.version for one in found if one.entity.key.path[-1].kind == place.kinds.guard]
    if len(found) > len(guards):
        raise AlreadyAppliedError("a receipt of this commit exists")
    if [seen or None] != (guards or [None]):
        raise ChangedError(f"{counter} has been set meanwhile")
