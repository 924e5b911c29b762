"""A commit whose answer was lost: the store has it, the flusher does not know, and it counts once."""

import asyncio
from typing import Any

import pytest

from shared.datastore.client import DatastoreClient
from shared.datastore.store import DatastoreStore
from shared.model.buckets import Instant
from shared.model.errors import AlreadyAppliedError, TransientError
from shared.model.words import Commit
from tests.contracts.store import commit, total
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.proxy import Proxy, proxy


async def lose_the_answer(
    store: DatastoreStore, client: DatastoreClient, wire: Proxy, same: Commit, direct: DatastoreStore
) -> asyncio.Future[Instant]:
    """Begin to apply, and return when the store has it and the one who waits does not know."""
    send = client._stubs["Commit"]

    def send_and_lose(*arguments: Any, **named: Any) -> Any:
        wire.lose_answers()
        return send(*arguments, **named)

    for _ in range(10):
        client._stubs["Commit"] = send_and_lose
        waiting = asyncio.ensure_future(store.apply(same))
        for _ in range(50):
            if (await direct.receipts([same.receipts[0].key])).found:
                client._stubs["Commit"] = send
                assert not waiting.done()
                return waiting
            await asyncio.sleep(0.02)
        client._stubs["Commit"] = send
        wire.cut()  # it was refused for contention with our looks, and that was lost
        await asyncio.wait([waiting])
    pytest.fail("it was never applied")


async def test_a_commit_whose_answer_was_lost_counts_once(datastore: Datastore) -> None:
    direct = await datastore.store()
    await direct.apply(commit(("a", 1)))
    async with proxy(datastore.host) as wire:
        client = datastore.client(wire.address)
        store = await datastore.store(client)
        same = commit(("a", 10), ("b", 10), keys=("lost",))
        waiting = await lose_the_answer(store, client, wire, same, direct)
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
        same = commit(("a", 10), keys=("cancelled",))
        waiting = await lose_the_answer(store, client, wire, same, direct)
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(AlreadyAppliedError):
            await direct.apply(same)
        assert await total(direct, "a") == 10
