"""The Firestore emulator stamps commits on one entity ahead of its own clock. Snapshots are whole all the same."""

import asyncio

import pytest

from shared.datastore.store import DatastoreStore
from shared.model.errors import TransientError
from shared.model.words import Commit, Receipt, ShardAdd
from tests.contracts.store import LATER
from tests.emulators.datastore_fixtures import Datastore

pytestmark = pytest.mark.timeout(240)

BURSTS = 3
AT_ONCE = 60
RECEIPTS = 150
REFUSED = 60_000
"""Microseconds. The emulator refuses what is further than 50 ms ahead of its clock."""


async def move(store: DatastoreStore, key: str) -> str | None:
    """Move 1 from one counter to another. Returns the key, or None if the emulator refused it: these are many at once,
    each locks the same entities.
    """
    receipts = [Receipt(key, LATER), *(Receipt(f"{key}-{number}", LATER) for number in range(RECEIPTS))]
    try:
        await store.apply(Commit(tuple(receipts), (ShardAdd("a", 0, -1, 1), ShardAdd("b", 0, 1, 1))))
    except TransientError:
        return None
    return key


async def test_in_bursts_of_commits_snapshots_are_whole_and_of_an_instant_that_has_come(datastore: Datastore) -> None:
    store, client = await datastore.store(), datastore.clients[0]

    async def read(keys: list[str]) -> set[str]:
        async with store.snapshot() as snapshot:
            totals, applied = await snapshot.read(["a", "b"], keys)
        look = client.request("Lookup")
        look.keys.append(datastore.place.shard("a", 0))
        look.read_options.read_time.FromMicroseconds(snapshot.time + REFUSED)
        await client._call("Lookup", look)
        assert -totals["a"].value == totals["b"].value
        return {*applied}

    for burst in range(BURSTS):
        keys = [f"{burst}-{number}" for number in range(AT_ONCE)]
        moves = asyncio.gather(*(move(store, key) for key in keys))
        while not moves.done():
            await read(keys)
        assert {*filter(None, await moves)} <= await read(keys)
