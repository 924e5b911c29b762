"""The time to make a commit grows with its counters, not with their square."""

from time import process_time

from google.cloud.datastore_v1.types import datastore

from shared.datastore.client import DatastoreClient
from shared.datastore.commit import Sums, TransformWriter
from shared.datastore.keys import DatastorePlace
from shared.datastore.shards import ShardState
from shared.model.words import Commit, ShardAdd
from shared.runtime.clock import SystemClock

FEW, MANY = 250, 4_000


async def seconds(counters: int) -> float:
    """To say how many shards so many new counters have."""
    clock = SystemClock()
    client = DatastoreClient("p", "", clock, "127.0.0.1:1")
    writer = TransformWriter(client, DatastorePlace("p"), clock)
    sums = Sums(Commit((), tuple(ShardAdd(f"c{number}", 0, 1, 1) for number in range(counters))))
    standings = dict.fromkeys(sums.shards, ShardState())
    request = datastore.CommitRequest.pb()()
    begun = process_time()
    writer._raise_all(request, sums.counters(), sums, standings)
    took = process_time() - begun
    assert len(request.mutations) == counters
    await client.close()
    return took


async def test_the_time_grows_with_the_number_of_new_counters() -> None:
    few = min([await seconds(FEW) for _ in range(3)])
    assert min([await seconds(MANY) for _ in range(3)]) < 4 * MANY / FEW * few
