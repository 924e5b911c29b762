"""The fleet in Datastore, held to the contract."""

import pytest

from shared.datastore.fleet import DatastoreFleetBook
from tests.contracts.fleets import FleetContract, Shared
from tests.emulators.datastore_fixtures import Datastore


async def shared_on(datastore: Datastore) -> Shared:
    store, other = await datastore.store(), await datastore.store()
    one, two = (DatastoreFleetBook(one._client, datastore.place, datastore.clock) for one in (store, other))
    return Shared(one, two, store)


class TestFirestore(FleetContract):
    @pytest.fixture
    async def shared(self, datastore: Datastore) -> Shared:
        return await shared_on(datastore)
