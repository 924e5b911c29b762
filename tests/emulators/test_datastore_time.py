"""Datastore tells the time, keeps promises, and refuses by itself what was too long on its way."""

import asyncio
import time
from dataclasses import replace

import pytest

from shared.datastore.commit import TRANSACTION
from shared.datastore.store import DatastoreStore
from shared.model.buckets import DAY, Millis, StoreMillis, WallSeconds
from shared.model.errors import LateError, TransientError
from shared.model.receipts import Promise
from shared.model.words import Bounds, Commit, Receipt, ShardAdd
from shared.runtime import metrics
from shared.runtime.clock import Skew, SystemClock
from tests.contracts.store import LATER, commit, total
from tests.emulators.datastore_fixtures import Datastore

pytestmark = pytest.mark.timeout(240)

BURSTS = 3
AT_ONCE = 60
RECEIPTS = 150
REFUSED = 60_000
"""Microseconds. The emulator refuses what is further than 50 ms ahead of its clock."""


class Ahead(SystemClock):
    """A wall clock that somebody has set wrong."""

    def now(self) -> WallSeconds:
        return WallSeconds(time.time() + 9 * DAY / 1_000)


async def test_the_time_is_the_servers_whatever_the_wall_clock_says(datastore: Datastore) -> None:
    datastore.clock = Ahead()
    store = await datastore.store()
    assert abs(await store.now() / 1_000 - time.time()) < 60
    assert metrics.CLOCK_AHEAD.get() > 8 * DAY / 1_000


async def test_a_commit_that_may_come_too_late_is_refused(datastore: Datastore) -> None:
    store = await datastore.store()
    now = await store.now()
    for until in (now - 1, now + TRANSACTION // 2):
        with pytest.raises(LateError) as late:
            await store.apply(replace(commit(("a", 1), keys=("k",)), bounds=Bounds(StoreMillis(until))))
        assert late.value.reached > until
    assert not (await store.receipts(["k"])).found
    await store.apply(replace(commit(("a", 1), keys=("k",)), bounds=Bounds(StoreMillis(now + 2 * TRANSACTION))))
    assert await total(store, "a") == 1


async def test_what_is_sent_after_the_server_has_closed_its_transaction_is_tried_again_never_buried(
    datastore: Datastore,
) -> None:
    client = datastore.client()
    store = await datastore.store(client)
    bounds = Bounds(StoreMillis(await store.now() + DAY))
    begun: list[bytes] = []
    begin = client.begin

    async def remembered() -> bytes:
        begun.append(await begin())
        return begun[-1]

    async def closed() -> bytes:
        return begun[0]

    client.begin = remembered  # type: ignore[method-assign] # to see what it says
    await store.apply(replace(commit(("a", 1), keys=("k",)), bounds=bounds))
    client.begin = closed  # type: ignore[method-assign] # a process that stood still for minutes
    with pytest.raises(TransientError, match="ransaction is invalid or closed"):
        await store.apply(replace(commit(("a", 1), keys=("l",)), bounds=bounds))
    assert await total(store, "a") == 1


def promise(reach: int, life: int, seen: int) -> Promise:
    return Promise(Millis(reach), Millis(life), StoreMillis(seen))


async def test_promises_of_all_flushers_are_kept(datastore: Datastore) -> None:
    one, other = await datastore.store(), await datastore.store()
    assert await one.promises() == []
    await one.promise(promise(1, 2, 30 * DAY))
    await other.promise(promise(3, 4, 31 * DAY))
    await one.promise(promise(1, 2, 29 * DAY))
    assert set(await other.promises()) == {promise(1, 2, 30 * DAY), promise(3, 4, 31 * DAY)}
    await other.promise(promise(3, 4, 200 * DAY))
    assert await one.promises() == [promise(3, 4, 200 * DAY)]
    assert await one.sweep(StoreMillis(1 << 47), 100) == 0


def test_a_clock_that_is_far_off_is_said_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    skew = Skew("the store's")
    for ahead in (10.0, 3_500.0, 9 * 86_400.0, 9 * 86_400.0 + 1, -8_000.0):
        skew.saw(ahead)
    (said,) = caplog.messages
    assert said.startswith("this machine's clock is 216.0 hours ahead of the store's clock: set it right")
    skew.saw(1.0)
    assert caplog.messages[1] == "this machine's clock agrees with the store's clock again"


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
    """The emulator stamps commits on one entity ahead of its own clock."""
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
