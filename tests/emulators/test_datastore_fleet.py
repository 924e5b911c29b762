"""The fleet in Datastore, held to the contract."""

import pytest

from shared.datastore.fleet import MOST_PROBES, DatastoreFleetBook
from shared.datastore.keys import PROBE
from shared.model.buckets import NEVER
from shared.model.receipts import key_of_envelope
from shared.model.words import Receipt
from tests.contracts.fleets import FleetContract, Shared
from tests.emulators.datastore_fixtures import Datastore


class TestFirestore(FleetContract):
    @pytest.fixture
    async def shared(self, datastore: Datastore) -> Shared:
        store, other = await datastore.store(), await datastore.store()
        return Shared(DatastoreFleetBook(store._client), DatastoreFleetBook(other._client), store)


@pytest.mark.parametrize(
    ("keys", "members"),
    [
        ([f"{PROBE}{number}" for number in range(MOST_PROBES)], []),
        ([f"{PROBE}{number}" for number in range(MOST_PROBES + 1)], ["older"]),
        ([f"{PROBE}1", key_of_envelope("1")], ["older"]),
    ],
)
async def test_probes_of_other_processes_do_not_tell_that_a_store_was_used(
    datastore: Datastore, keys: list[str], members: list[str]
) -> None:
    """Or no reading would be exact for more than an hour after a fleet has begun."""
    client = datastore.client()
    request = client.commit_request()
    for key in keys:
        request.mutations.add().insert.CopyFrom(datastore.place.receipt_entity(Receipt(key, NEVER)))
    await client.commit(request)
    look = await DatastoreFleetBook(client).change(lambda fleet, _: fleet)
    assert [*look.fleet.members] == members
