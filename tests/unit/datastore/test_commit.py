"""A commit to Datastore: how dead receipts are stored, and how the time to make it grows."""

from time import process_time

from google.cloud.datastore_v1.types import datastore

from shared.datastore.client import DatastoreClient
from shared.datastore.commit import Sums, TransformWriter
from shared.datastore.keys import BODY, COUNTERS, DEAD, EXPIRES, DatastorePlace, receipt_of
from shared.datastore.shards import ShardState
from shared.model.buckets import BrokerMillis, StoreMillis
from shared.model.dead_letters import read_body, with_body
from shared.model.words import DEAD as STATE
from shared.model.words import MAX_ID_BYTES, MAX_NAME_BYTES, Commit, Envelope, Increment, Receipt, ShardAdd
from shared.runtime.clock import SystemClock

MOST: int = 1_048_572
"""Bytes of an entity."""
PLACE = DatastorePlace("project")


def kept(envelope: Envelope, why: str = "refused") -> Receipt:
    return with_body(Receipt(envelope.key, StoreMillis(2**41), STATE), envelope, why, BrokerMillis(1), StoreMillis(3))


def test_no_ttl_policy_can_delete_one() -> None:
    """A property that does not exist never expires; one of 1970 does at once."""
    dead = kept(Envelope("e", {"a": 1}, created=2))
    entity = PLACE.receipt_entity(dead)
    assert EXPIRES not in entity.properties
    assert receipt_of(entity) == dead
    assert EXPIRES in PLACE.receipt_entity(Receipt("ek", StoreMillis(5))).properties


def test_only_its_counters_and_that_it_is_dead_are_indexed() -> None:
    properties = PLACE.receipt_entity(kept(Envelope("e", {"a": 1, "b": 2}))).properties
    assert {name for name, value in properties.items() if not value.exclude_from_indexes} == {COUNTERS, DEAD}
    assert BODY in properties
    assert [one.string_value for one in properties[COUNTERS].array_value.values] == ["a", "b"]


def test_the_largest_fits_into_an_entity() -> None:
    names = [f"{number:04}".ljust(MAX_NAME_BYTES, '"') for number in range(1_000)]
    keyed = tuple(Increment(name, -(2**53) + 1, "\\" * MAX_ID_BYTES) for name in names)
    largest = kept(Envelope("e", {}, {}, keyed, 2**41, retried=True), "\\" * 10_000)
    assert PLACE.receipt_entity(largest).ByteSize() < MOST
    assert read_body(largest).envelope.keyed == tuple(item._replace(id=None, receipt=item.key) for item in keyed)


FEW, MANY = 250, 4_000


async def seconds(counters: int) -> float:
    """To say how many shards so many new counters have."""
    client = DatastoreClient(DatastorePlace("p"), SystemClock(), "127.0.0.1:1")
    writer = TransformWriter(client)
    sums = Sums(Commit((), tuple(ShardAdd(f"c{number}", 0, 1, 1) for number in range(counters))))
    standings = dict.fromkeys(sums.shards, ShardState())
    request = datastore.CommitRequest.pb()()
    begun = process_time()
    writer._raise_all(request, sums.adds, sums, standings)
    took = process_time() - begun
    assert len(request.mutations) == counters
    await client.close()
    return took


async def test_the_time_grows_with_the_number_of_new_counters() -> None:
    few = min([await seconds(FEW) for _ in range(3)])
    assert min([await seconds(MANY) for _ in range(3)]) < 4 * MANY / FEW * few
