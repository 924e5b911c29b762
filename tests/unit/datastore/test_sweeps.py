"""A sweep that is late deletes only what it saw: what has been written since under the same key stays."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.cloud.datastore_v1.types import datastore

from shared.datastore.client import DatastoreClient
from shared.datastore.jobs import DatastoreJobs, entity_of
from shared.datastore.keys import EXPIRES, DatastorePlace, Key, name_of
from shared.datastore.store import DatastoreStore
from shared.model.buckets import StoreMillis
from shared.model.jobs import EXPORT, Job, JobState
from shared.model.words import Receipt
from tests.world.manual_clock import ManualClock

NOW = StoreMillis(10_000)
OLD, NEW = StoreMillis(1_000), StoreMillis(99_000)


class Server:
    """Entities with versions, of which queries find those that expired. `between` happens after each query."""

    def __init__(self) -> None:
        self.entities: dict[tuple[str, str], tuple[int, Any]] = {}
        self.version = 0
        self.between: Callable[[], None] = lambda: None

    def write(self, entity: Any) -> None:
        self.version += 1
        self.entities[name_of(entity.key)] = self.version, entity

    async def RunQuery(self, request: Any, **_: Any) -> Any:  # noqa: N802 (the name of the call)
        kind, limit = request.query.kind[0].name, request.query.limit.value
        keys_only = bool(request.query.projection)
        response = datastore.RunQueryResponse.pb()()
        for (its, _name), (version, entity) in sorted(self.entities.items()):
            expired = EXPIRES in entity.properties and entity.properties[EXPIRES].timestamp_value.ToMilliseconds() < NOW
            if its == kind and (expired or kind == "CountersinkTask") and len(response.batch.entity_results) < limit:
                found = response.batch.entity_results.add()
                found.entity.key.CopyFrom(entity.key)
                if not keys_only:  # only whole entities have a version
                    found.entity.CopyFrom(entity)
                    found.version = version
        response.batch.more_results = 3
        self.between()
        return response

    async def Lookup(self, request: Any, **_: Any) -> Any:  # noqa: N802
        response = datastore.LookupResponse.pb()()
        for key in request.keys:
            if (there := self.entities.get(name_of(key))) is not None:
                response.found.add(version=there[0]).entity.CopyFrom(there[1])
        return response

    async def Commit(self, request: Any, **_: Any) -> Any:  # noqa: N802
        for mutation in request.mutations:
            if mutation.base_version and self.entities.get(self._name(mutation), (0,))[0] != mutation.base_version:
                raise grpc.aio.AioRpcError(grpc.StatusCode.FAILED_PRECONDITION, *[grpc.aio.Metadata()] * 2, "version")
        for mutation in request.mutations:
            if mutation.HasField("delete"):
                self.entities.pop(self._name(mutation), None)
            else:
                self.write(getattr(mutation, mutation.WhichOneof("operation")))
        return datastore.CommitResponse.pb()()

    @staticmethod
    def _name(mutation: Any) -> tuple[str, str]:
        which = mutation.WhichOneof("operation")
        key: Key = mutation.delete if which == "delete" else getattr(mutation, which).key
        return name_of(key)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[DatastoreClient]:
    client = DatastoreClient(PLACE, ManualClock(), "127.0.0.1:1")
    client._stubs = {name: getattr(server, name) for name in ("RunQuery", "Lookup", "Commit")}
    yield client
    await client.close()


PLACE = DatastorePlace("p")


def receipt(key: str, expires: StoreMillis) -> Any:
    return PLACE.receipt_entity(Receipt(key, expires))


def buckets(name: str, expires: StoreMillis, count: int) -> Any:
    entity = PLACE.entity(PLACE.key(PLACE.kinds.buckets, name))
    entity.properties[EXPIRES].timestamp_value.FromMilliseconds(expires)
    entity.properties["p1"].integer_value = count
    return entity


async def test_a_receipt_that_was_made_anew_stays(server: Server, client: DatastoreClient) -> None:
    for number in range(9):
        server.write(receipt(f"k{number}", OLD))

    def retry() -> None:
        """The server's own expiry took the receipt, and a retry of the id was counted."""
        server.write(receipt("k3", NEW))

    server.between = retry
    assert await DatastoreStore(client).sweep(NOW, 100) == 8
    assert [name for _, name in server.entities] == ["k3"]


async def test_counts_by_time_to_which_was_added_stay(server: Server, client: DatastoreClient) -> None:
    server.write(buckets("a", OLD, 1))
    server.write(buckets("b", OLD, 1))

    def add() -> None:
        """After the second query: the first one is for receipts."""
        server.between = lambda: server.write(buckets("b", NEW, 2))

    server.between = add
    assert await DatastoreStore(client).sweep(NOW, 100) == 1
    assert [entity.properties["p1"].integer_value for _, entity in server.entities.values()] == [2]


async def test_what_has_gone_meanwhile_is_not_counted(server: Server, client: DatastoreClient) -> None:
    server.write(receipt("k", OLD))
    server.between = server.entities.clear
    assert await DatastoreStore(client).sweep(NOW, 100) == 0


@pytest.mark.parametrize("when", [1, 2])
async def test_a_new_job_of_the_same_id_stays(server: Server, client: DatastoreClient, when: int) -> None:
    """`when`: after which of the sweep's queries it is made: for jobs, or for the records of tasks."""
    jobs = DatastoreJobs(client)
    record = PLACE.entity(PLACE.key(PLACE.kinds.task, "j:a"))
    server.write(entity_of(PLACE, JobState(Job("j", EXPORT, "", 0, 0, OLD), 1)))
    server.write(record)
    left = when

    def again() -> None:
        nonlocal left
        left -= 1
        if not left:
            server.write(entity_of(PLACE, JobState(Job("j", EXPORT, "", 0, 0, NEW), 1)))
            server.write(record)

    server.between = again
    assert await jobs.sweep(NOW, 100) == 0
    job, task = server.entities["CountersinkJob", "j"][1], server.entities.get(("CountersinkTask", "j:a"))
    assert (job.properties["state"].string_value, task is not None) == ("running", True)


async def test_a_job_that_expired_goes_with_its_records(server: Server, client: DatastoreClient) -> None:
    jobs = DatastoreJobs(client)
    server.write(entity_of(PLACE, JobState(Job("j", EXPORT, "", 0, 0, OLD), 1)))
    for number in range(3):
        server.write(PLACE.entity(PLACE.key(PLACE.kinds.task, f"j:{number}")))
    assert await jobs.sweep(NOW, 2) == 2
    assert await jobs.sweep(NOW, 2) == 2
    assert not server.entities
