"""Processes on Pub/Sub and Datastore whose clocks are wrong, whose settings differ, or that stand still."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from countersink import AsyncClient
from shared.model.buckets import DAY as MS_A_DAY
from shared.model.receipts import Promise
from shared.pubsub.setup import provision
from tests.emulators.datastore_fixtures import FIRESTORE, Datastore, shared_emulator
from tests.emulators.pubsub_fixtures import PUBSUB, Pubsub, settings_of
from tests.emulators.redis_fixtures import Start
from tests.processes.harness import Processes, count, processes
from tests.processes.moved_clocks import DAY, Clocks
from tests.world.scraping import metric, until

SOON = {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}
FORGOTTEN = 195.0
"""Seconds after which Redis has forgotten what was settled."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def started(datastore: Datastore, pubsub: Pubsub, tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, tmp_path / "log", **settings_of(pubsub, datastore), **SOON) as all_of_them:
        yield all_of_them


class Moved(NamedTuple):
    """Emulators that go by clocks which tests move, one after another."""

    time: Clocks
    firestore: str
    pubsub: str


@pytest.fixture(scope="session")
def moved(clock_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    """Of this worker alone."""
    folder = tmp_path_factory.mktemp("moved")
    time = Clocks(clock_library, folder)
    with ExitStack() as emulators:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in time.environment.items():
                patched.setenv(name, value)
            firestore = emulators.enter_context(shared_emulator(folder, "firestore", FIRESTORE))
            pubsub = emulators.enter_context(shared_emulator(folder, "pubsub", PUBSUB))
        yield Moved(time, firestore, pubsub)


@pytest.fixture
async def world(
    moved: Moved, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Clocks, Processes]]:
    """Processes that go by the clocks of the emulators. The parameter: how many seconds Pub/Sub keeps messages."""
    keeps = getattr(request, "param", 604_800)
    datastore, pubsub = Datastore(moved.firestore), Pubsub(moved.pubsub)
    await provision(pubsub.client(), pubsub.place, lease=60, retention=keeps)
    settings = settings_of(pubsub, datastore) | SOON | moved.time.environment
    async with processes(tmp_path, tmp_path / "log", **settings) as all_of_them:
        yield moved.time, all_of_them
    await pubsub.close()


async def test_neither_a_flusher_ahead_nor_an_ingest_behind_buries_what_is_healthy(
    started: Processes, clocks: Callable[[], Clocks], tmp_path: Path
) -> None:
    ahead, behind = clocks(), clocks()
    ahead.move(real=9 * DAY)
    behind.move(real=-9 * DAY)
    ingest = await started.start("ingest", "--port", "0", **behind.environment)
    flusher = await started.start("flusher", "--port", "0", **ahead.environment)
    async with AsyncClient(ingest.url) as client:
        for _ in range(5):
            await client.increment("a", 1)

        async def applied() -> bool:
            return (await client.get("a", max_age=0)).applied == 5

        await until(applied)
    assert await metric(flusher.url, "countersink_dead_lettered_messages_total") == 0
    assert await metric(flusher.url, "countersink_clock_ahead_seconds") > 8.9 * DAY
    assert await metric(ingest.url, "countersink_clock_ahead_seconds") < -8.9 * DAY
    said = (tmp_path / "log").read_text()
    assert said.count("216.0 hours ahead of Datastore's clock: set it right") == 1
    assert said.count("216.0 hours behind Datastore's clock: set it right") == 1


async def test_flushers_with_different_settings_go_by_the_smaller_promise(
    started: Processes, datastore: Datastore
) -> None:
    """And receipts live by the greater."""
    ingest = await started.start("ingest", "--port", "0")
    store = await datastore.store()
    async with AsyncClient(ingest.url) as client:
        for retention in ("604800", "2592000"):
            flusher = await started.start("flusher", COUNTERSINK_RETENTION=retention)
            await client.increment("a", 1, wait=30)
            assert await flusher.end(signal.SIGTERM) == 0
    promises: dict[int, Promise] = {one.reach // MS_A_DAY: one for one in await store.promises()}
    assert set(promises) == {7, 30}


async def test_a_flusher_that_stood_still_for_longer_than_receipts_live_adds_nothing_twice(
    world: tuple[Clocks, Processes],
) -> None:
    """Another has applied what it held, and the receipts are gone by the server's clock."""
    time, started = world
    ingest = await started.start("ingest", "--port", "0")
    lease = {"COUNTERSINK_LEASE": "10"}
    sleeper = await started.start("flusher", "--port", "0", COUNTERSINK_FLUSH_INTERVAL="60", **lease)
    await count(ingest.url, 9)
    async with AsyncClient(ingest.url) as client:

        async def applied() -> int:
            return (await client.get("a", max_age=0)).applied

        async def pulled() -> bool:
            return await metric(sleeper.url, "countersink_pulled_messages_total") > 0

        await until(pulled)
        with time.stopped(sleeper.process.pid, 0):
            other = await started.start("flusher", "--port", "0", **lease)

            async def counted() -> bool:
                time.move_all(1)  # so that the leases of the other one run out
                return await applied() == 9

            await until(counted)
            for _ in range(9):  # who is not stopped goes on meanwhile
                time.move_all(DAY)
                assert await applied() == 9

            async def swept() -> bool:
                time.move_all(11)  # so that receipts are swept; in steps that are shorter than a call may take
                await asyncio.sleep(0.4)
                return await metric(other.url, "countersink_datastore_operations_total", operation="delete") >= 2

            await until(swept)

        async def awake() -> bool:
            time.move_all(1)  # so slowly that a call on a busy machine does not take too long by these clocks
            await asyncio.sleep(0.3)
            ends = ("countersink_dead_lettered_messages_total", "countersink_flushes_total")
            done = [await metric(sleeper.url, name) for name in ends]
            return any(done) and not await metric(sleeper.url, "countersink_held_messages")

        await until(awake)
        assert await applied() == 9


@pytest.mark.parametrize("world", [600], indirect=True)
async def test_a_seek_after_the_retention_was_raised_adds_nothing_twice(world: tuple[Clocks, Processes]) -> None:
    """What comes back was promised receipts of the shorter life, and these are gone."""
    time, started = world
    ingest = await started.start("ingest", "--port", "0")
    short = await started.start("flusher", "--port", "0", COUNTERSINK_RETENTION="600")
    await count(ingest.url, 5)
    async with AsyncClient(ingest.url) as client:

        async def applied() -> bool:
            return (await client.get("a", max_age=0)).applied == 5

        await until(applied)
        time.move_all(30 * 3_600)

        async def swept() -> bool:
            time.move_all(11)
            await asyncio.sleep(0.4)
            return await metric(short.url, "countersink_datastore_operations_total", operation="delete") >= 1

        await until(swept)
        assert await short.end(signal.SIGTERM) == 0
        raised = await started.start("flusher", "--port", "0", COUNTERSINK_RETENTION="2592000")
        pubsub = Pubsub(started.environment["PUBSUB_EMULATOR_HOST"])
        subscription = started.environment["COUNTERSINK_BROKER"].rpartition("=")[2]
        await pubsub.seek(1, f"projects/{pubsub.place.project}/subscriptions/{subscription}")

        async def buried() -> bool:
            time.move_all(1)
            return await metric(raised.url, "countersink_dead_lettered_messages_total") > 0

        await until(buried)
        assert await applied()
        await pubsub.close()


async def test_an_ingest_whose_machine_was_suspended_knows_that_what_it_read_before_is_old(
    world: tuple[Clocks, Processes],
    clocks: Callable[[], Clocks],
    start_redis: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis has forgotten meanwhile that the counter was written."""
    time, started = world
    with monkeypatch.context() as patched:
        for name, value in time.environment.items():
            patched.setenv(name, value)
        overlay = {"COUNTERSINK_OVERLAY": start_redis().url}
    of_sleeper = clocks()
    of_sleeper.move_to(time)
    other = await started.start("ingest", "--port", "0", **overlay)
    sleeper = await started.start("ingest", "--port", "0", **overlay, **of_sleeper.environment)
    await started.start("flusher", **overlay)
    async with AsyncClient(other.url) as client, AsyncClient(sleeper.url) as late:

        async def exact() -> bool:
            return (await client.get("a")).exact and (await late.get("a")).exact

        await until(exact)
        assert (await late.get("a")).value == 0
        with of_sleeper.suspended(sleeper.process.pid, FORGOTTEN):
            for _ in range(5):
                await client.increment("a", 1, wait=30)
            time.move_all(FORGOTTEN)
        for _ in range(20):
            read = await late.get("a")
            assert read.value == 5 or not read.exact
        await until(exact)
        assert (await late.get("a")).value == 5
