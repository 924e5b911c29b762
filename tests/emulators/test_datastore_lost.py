"""A commit whose answer was lost: the store has it, the flusher does not know, and it counts once."""

import asyncio
from typing import Any

import pytest

from shared.errors import AlreadyAppliedError, TransientError
from shared.google.datastore_client import DatastoreClient
from shared.google.datastore_store import DatastoreStore
from tests.contracts.store import commit, total
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.proxy import Proxy, proxy


@pytest.fixture(params=["firestore", "older"])
def datastore(request: pytest.FixtureRequest) -> Datastore:
    """Each of the emulators."""
    one: Datastore = request.getfixturevalue(request.param)
    return one


def lose_the_answer_to_a_commit(client: DatastoreClient, wire: Proxy) -> None:
    """To the first one: transactions begin and look up before it."""
    send = client._stubs["Commit"]

    def send_and_lose(*arguments: Any, **named: Any) -> Any:
        client._stubs["Commit"] = send
        wire.lose_answers()
        return send(*arguments, **named)

    client._stubs["Commit"] = send_and_lose


async def until_there(store: DatastoreStore, key: str) -> None:
    async with asyncio.timeout(30):
        while not (await store.receipts([key])).found:
            await asyncio.sleep(0.01)


async def test_a_commit_whose_answer_was_lost_counts_once(datastore: Datastore) -> None:
    direct = await datastore.store()
    await direct.apply(commit(("a", 1)))
    async with proxy(datastore.host) as wire:
        client = datastore.client(wire.address)
        store = await datastore.store(client)
        lose_the_answer_to_a_commit(client, wire)
        same = commit(("a", 10), ("b", 10), keys=("lost",))
        waiting = asyncio.ensure_future(store.apply(same))
        await until_there(direct, "lost")
        assert not waiting.done()
        wire.cut()
        with pytest.raises(TransientError) as lost:
            await waiting
        assert lost.value.__cause__ is not None
        async with asyncio.timeout(30):
            while True:  # with jitter the channel waits up to some seconds before it connects again
                try:
                    await store.apply(same)
                except AlreadyAppliedError:
                    break
                except TransientError:
                    await asyncio.sleep(0.05)
        assert (await store.receipts(["lost"])).found["lost"].state == "applied"
        await store.apply(commit(("a", 100)))
        assert (await total(direct, "a"), await total(direct, "b")) == (111, 10)


async def test_a_cancelled_commit_is_found_by_its_receipt(datastore: Datastore) -> None:
    """Whoever cancels knows as little as one whose answer was lost."""
    direct = await datastore.store()
    async with proxy(datastore.host) as wire:
        client = datastore.client(wire.address)
        store = await datastore.store(client)
        lose_the_answer_to_a_commit(client, wire)
        same = commit(("a", 10), keys=("cancelled",))
        waiting = asyncio.ensure_future(store.apply(same))
        await until_there(direct, "cancelled")
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(AlreadyAppliedError):
            await direct.apply(same)
        assert await total(direct, "a") == 10
