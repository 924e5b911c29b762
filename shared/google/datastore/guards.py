"""Changes the guards of counters: sets, over the version that they read, and dead receipts, which mark them."""

from collections.abc import Collection
from typing import Any

from shared.google.datastore.client import DatastoreClient
from shared.google.datastore.dead_receipts import revive
from shared.google.datastore.import_marks import move
from shared.google.datastore.keys import DEAD, DELETED, LAST, DatastorePlace, name_of, unindexed
from shared.google.datastore.mutations import write
from shared.model.errors import AlreadyAppliedError, ChangedError
from shared.model.words import Commit, Guard


async def guard(client: DatastoreClient, place: DatastorePlace, request: Any, commit: Commit) -> None:
    """Add to the request what the commit changes in guards.

    A set changes the guard of its counter over the version that it read, or the commit fails. A dead receipt with a
    body marks the guards of its counters. A mark is never removed, so a marked guard is left alone: dead letters make a
    set start over at most once per counter.
    """
    marked = _marked(commit)
    counters = {*marked, *(commit.guard or ())[:1]}
    if not counters:
        return
    found = (await client.look_up(place.guard(counter) for counter in counters)).entities
    guards = {name_of(one.entity.key)[1]: one for one in found}
    for counter in sorted(counters):
        there = guards.get(counter)
        entity = place.entity(place.guard(counter))
        if there is not None:
            entity.CopyFrom(there.entity)
        version = there.version if there is not None else 0
        if commit.guard is not None and commit.guard[0] == counter:
            version = commit.guard[1].version
            entity.properties[DELETED].boolean_value = commit.guard[1].deleted
            # The guard names the set, because a write that changes nothing would keep the version.
            unindexed(entity, LAST).string_value = commit.receipts[0].key
        elif DEAD in entity.properties:
            continue
        if counter in marked:
            entity.properties[DEAD].boolean_value = True
        write(request, entity, version)


async def complete(client: DatastoreClient, place: DatastorePlace, request: Any, commit: Commit) -> None:
    """Add to the request all that the commit changes beside shards and configs."""
    for receipt in commit.receipts:
        request.mutations.add().insert.CopyFrom(place.receipt_entity(receipt))
    await revive(client, place, request, commit.revived)
    await guard(client, place, request, commit)
    await move(client, place, request, commit.marks)


def depends(commit: Commit) -> bool:
    """Whether the commit applies only over versions that were read."""
    return commit.guard is not None or bool(commit.marks) or bool(_marked(commit))


def _marked(commit: Commit) -> Collection[str]:
    """The counters that are named in dead receipts of this commit."""
    return {counter for receipt in (*commit.receipts, *commit.revived) for counter in receipt.counters}


async def check(client: DatastoreClient, place: DatastorePlace, commit: Commit) -> None:
    """Raise the reason why such a commit failed, if it was a receipt or the guard. The server does not always say."""
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
