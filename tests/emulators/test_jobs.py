"""Jobs on Google's emulators: the contracts, what a torn look must not say, and all of it together."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from flusher.cleanup import DailyExpiry
from flusher.jobs import Adding, Exporting, Resetting, Runner, Visit, Worker
from shared.counters.jobs import JobResults, JobStarter
from shared.counters.reader import AllNames, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Compactor, Setter
from shared.datastore.client import DatastoreClient, Found
from shared.datastore.jobs import BOOKS, DatastoreJobs
from shared.datastore.keys import name_of
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY, DAY_SECONDS, HOUR, BucketAdd, ByTime, Instant, Millis, TimeBucket
from shared.model.errors import ShareError
from shared.model.jobs import ADD, DONE, EXPIRE, EXPORT, KINDS, RUNNING, ExpireRule, Job, Span, Task
from shared.model.receipts import keys_of_changes
from shared.model.words import Commit, Receipt, ShardAdd
from shared.pubsub.client import TIMEOUT
from shared.pubsub.subscription import PubsubTasks
from shared.runtime.clock import SystemClock
from shared.runtime.retry import Stop
from tests.contracts.jobs import JOB, JobsContract, done, standing
from tests.contracts.store import LATER
from tests.contracts.tasks import TasksContract, Waiting
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import LEASE, Pubsub, WatchedClient
from tests.world.manual_clock import ManualClock
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.tasks import LeasedTasks
from tests.world.series import ALL_KEPT

PAGE = 30


def jobs_in(datastore: Datastore, client: DatastoreClient | None = None) -> DatastoreJobs:
    return DatastoreJobs(client or datastore.client())


async def test_exports_have_a_limit_of_which_an_owner_may_have_a_part(datastore: Datastore) -> None:
    jobs = DatastoreJobs(datastore.client(), most_exports=8)
    export = JOB._replace(kind=EXPORT, number=0, expires=LATER)
    outcomes = await asyncio.gather(
        *(jobs.create(export._replace(id=f"me/{number}")) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(one, ShareError) for one in outcomes) == 3
    for number in range(8):
        await jobs.create(export._replace(id=f"{number}"))
    await jobs.create(export._replace(id="you/0"))
    for id_, said in (("me/a", "the owner 'me' may have 2 of them, and 2 are kept"), ("a", "8 exports, and 8 are")):
        with pytest.raises(ShareError, match=said) as refused:
            await jobs.create(export._replace(id=id_))
        assert refused.value.retry_after > 3_600
    await jobs.create(JOB._replace(id="me/another-kind"))
    await jobs.end("3", DONE, 1_600)
    with pytest.raises(ShareError):
        await jobs.create(export._replace(id="a"))
    await jobs.discard("3", 1_600, "deleted", 10)
    assert (await jobs.create(export._replace(id="a")))[1]
    assert not (await jobs.create(export._replace(id="a")))[1]


class TestPubsubTasks(TasksContract):
    @pytest.fixture
    async def waiting(self, pubsub: Pubsub) -> AsyncIterator[Waiting]:
        clients = [pubsub.client(), pubsub.client()]
        queues = [PubsubTasks(client, pubsub.place, lease=LEASE) for client in clients]

        async def lapse() -> None:
            for client in clients:
                if client.leased:
                    await client.set_deadline(pubsub.place.tasks.subscription, sorted(client.leased), 0, TIMEOUT)

        yield Waiting(queues[0], queues[1], lapse)
        for queue in queues:
            await queue.close()


class TearingClient(DatastoreClient):
    """A look at the books of a job may be of two instants: some of them are as they were at another look."""

    stale: dict[str, Any] | None = None
    torn = 0

    async def look_up(self, keys: Iterable[Any], *, read_time: Instant | None = None) -> Found:
        found = await super().look_up(keys, read_time=read_time)
        if self.stale is None or len(found.entities) <= BOOKS:
            return found
        stale, self.stale = self.stale, None
        self.torn += 1
        return found._replace(entities=[stale.get(name_of(one.entity.key)[1], one) for one in found.entities])


class KilledNowAndThen:
    """What a flusher does of jobs, as a process that dies."""

    def __init__(self, datastore: Datastore, pubsub: Pubsub) -> None:
        self._datastore, self._pubsub = datastore, pubsub

    async def live(self, seconds: float | None) -> None:
        client: WatchedClient = self._pubsub.client()
        tasks = PubsubTasks(client, self._pubsub.place, lease=LEASE)
        jobs, store = jobs_in(self._datastore), await self._datastore.store()
        clock = self._datastore.clock
        overlay = ProcessOverlay(clock)
        visits: dict[str, Visit] = {ADD: Adding(store, Reader(store, overlay, clock, 0), overlay, exact=False)}
        worker = Worker(tasks, jobs, store, AllNames(store, overlay), visits, clock=clock, page=PAGE)
        running = asyncio.create_task(Runner(tasks, worker, at_once=4, lease=LEASE).run(Stop(), 0))
        if seconds is not None:
            await asyncio.sleep(seconds)
        else:
            async with asyncio.timeout(60):
                while (await standing(jobs)).state == RUNNING:
                    await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.wait([running])
        await tasks.close()
        if client.leased:  # what a killed one held
            await client.set_deadline(self._pubsub.place.tasks.subscription, sorted(client.leased), 0, TIMEOUT)


class TestDatastoreJobs(JobsContract):
    """And what is so in Datastore."""

    @pytest.fixture
    async def jobs(self, datastore: Datastore) -> DatastoreJobs:
        return jobs_in(datastore)

    async def test_a_torn_look_does_not_finish_a_job(self, datastore: Datastore) -> None:
        """A task opened two and one of these is done: whoever misses the first of both sees none open."""
        client = TearingClient(datastore.place, datastore.clock, datastore.host)
        datastore.clients.append(client)
        jobs = jobs_in(datastore, client)
        books = iter((1, 2))
        jobs._pick = lambda _: next(books)
        await jobs.create(JOB)
        before = (await client.look_up([jobs._book("j", 1)])).entities[0]
        first = done(Task("j"), "p1", "p2")
        await jobs.record(first)
        await jobs.record(done(first.children[0]))
        client.stale = {"j:1": before}
        assert (await standing(jobs)).open == 1
        assert client.torn == 1
        assert (await standing(jobs)).open == 1

    async def test_an_earlier_build_leaves_exports_by_time_to_newer_ones(self, datastore: Datastore) -> None:
        """It does jobs whose kinds it knows, and it would export totals."""
        jobs, client, place = jobs_in(datastore), datastore.client(), datastore.place
        export = JOB._replace(kind=EXPORT, number=0, expires=LATER)
        for id_, span in (("totals", None), ("hours", Span("hour", 5))):
            await jobs.create(export._replace(id=id_, span=span))
            (found,) = (await client.look_up([place.key(place.kinds.job, id_)])).entities
            assert (found.entity.properties["kind"].string_value in KINDS) is (span is None)
            assert ("span" in found.entity.properties) is (span is not None)
            assert (await standing(jobs, id_)).job == export._replace(id=id_, span=span)

    async def test_counts_by_time_are_exported(self, datastore: Datastore) -> None:
        store, jobs, clock = await datastore.store(), jobs_in(datastore), SystemClock()
        overlay, tasks = ExactOverlay(clock), LeasedTasks(clock)
        hour = int(clock.now()) // 3_600 * HOUR
        names = [f"p:{number:02}" for number in range(25)]
        for number, name in enumerate(names):
            adds = [BucketAdd(TimeBucket(name, "hour", when), 0, number, LATER) for when in (hour - DAY, hour)]
            total = Commit((Receipt(f"k{name}", LATER),), (ShardAdd(name, 0, 2 * number, 1),))
            await store.apply(replace(total, by_time=ByTime(tuple(adds), ALL_KEPT)))
        reader = Reader(store, overlay, clock, 0)
        exporting = Exporting(reader, SeriesReader(store, overlay, clock, ALL_KEPT))
        worker = Worker(tasks, jobs, store, AllNames(store, overlay), {EXPORT: exporting}, clock=clock, page=10)
        begin, now = hour - 2 * DAY, int(clock.now() * 1_000)
        job = Job("j", EXPORT, "p:", created=now, expires=LATER, span=Span("hour", begin))
        await jobs.create(job)
        await tasks.publish([Task("j")])
        async with asyncio.timeout(60):
            while leases := await tasks.pull(10, 0):
                for lease in leases:
                    await worker.work(lease.task)
                await tasks.ack([lease.token for lease in leases])
        assert (await standing(jobs)).state == DONE
        lines = [orjson.loads(line) for _, chunk in await jobs.chunks("j", "", 100) for line in chunk.splitlines()]
        assert [line["name"] for line in lines] == names
        for number, line in enumerate(lines):
            assert (line["value"], line["total"], line["exact"]) == (2 * number, 2 * number, True)
            assert [point["count"] for point in line["points"]] == [number] * (2 if number else 0)

    async def test_what_expires_is_in_the_result_of_one_job_though_workers_die(self, datastore: Datastore) -> None:
        store, clock = await datastore.store(), SystemClock()
        names = [f"p:{number:03}" for number in range(90)]
        adds = tuple(ShardAdd(name, 0, 3, 1) for name in names)
        await store.apply(Commit((Receipt("k", LATER),), adds))
        overlay, tasks = ExactOverlay(clock), LeasedTasks(clock)
        later = ManualClock(clock.now() + 401 * DAY_SECONDS)
        reader, compactor = Reader(store, overlay, clock, 0), Compactor(store, clock, DAY)
        fleet = []
        for _ in range(3):
            jobs = jobs_in(datastore)
            starter = JobStarter(jobs, tasks, overlay, compactor, later, store=store, receipts_live=Millis(16 * DAY))
            fleet.append(DailyExpiry((ExpireRule("p:", 400),), jobs, starter, later))
        await asyncio.gather(*(one.look() for one in fleet))
        (found,) = await jobs.latest("", 10)
        resetting = Resetting(Setter(reader, store, overlay, clock, Millis(16 * DAY)))
        worker = Worker(tasks, jobs, store, AllNames(store, overlay), {EXPIRE: resetting}, clock=clock, page=PAGE)

        async def count() -> None:
            for number, name in enumerate(names[::9]):
                await store.apply(Commit((Receipt(f"m{number}", LATER),), (ShardAdd(name, 0, 100, 1),)))

        counting = asyncio.create_task(count())
        (lease, *_) = await tasks.pull(1, 0)
        killed = asyncio.create_task(worker.work(lease.task))
        async with asyncio.timeout(60):
            while not await store.receipts_from(keys_of_changes(found.job.id), "", 1):
                await asyncio.sleep(0)
        killed.cancel()
        await asyncio.wait([killed])
        await tasks.give_back([lease.token])
        while leases := await tasks.pull(4, 0):
            await asyncio.gather(*(worker.work(lease.task) for lease in leases))
            await tasks.ack([lease.token for lease in leases])
        await counting
        assert (await standing(jobs, found.job.id)).state == DONE
        pages = [page async for page in JobResults(jobs, store).pages(found.job.id)]
        taken = [orjson.loads(line) for page in pages for line in page.splitlines()]
        assert [line["name"] for line in taken] == names
        async with store.snapshot() as snapshot:
            totals, _ = await snapshot.read(names, ())
        left = sum(total.value for total in totals.values())
        assert left + sum(line["before"] for line in taken) == 3 * len(names) + 100 * len(names[::9])

    async def test_each_counter_gets_it_once_though_workers_die(self, datastore: Datastore, pubsub: Pubsub) -> None:
        store, clock = await datastore.store(), SystemClock()
        names = [f"p:{number:04}" for number in range(300)]
        for begin in range(0, len(names), 100):
            adds = [ShardAdd(name, 0, 1, 1) for name in names[begin : begin + 100]]
            await store.apply(Commit((Receipt(f"k{begin}", LATER),), tuple(adds)))
        tasks = PubsubTasks(pubsub.client(), pubsub.place, lease=LEASE)
        jobs = jobs_in(datastore)
        overlay, compactor = ExactOverlay(clock), Compactor(store, clock, DAY)
        starter = JobStarter(jobs, tasks, overlay, compactor, clock, store=store, receipts_live=Millis(16 * DAY))
        await starter.start(ADD, "p:", 10, id_="j")
        worker = KilledNowAndThen(datastore, pubsub)
        for seconds in (0.3, 0.8):
            await worker.live(seconds)
        await worker.live(None)
        there = await standing(jobs)
        assert (there.state, there.progress.changed, there.open) == (DONE, len(names), 0)
        async with (await datastore.store()).snapshot() as snapshot:
            totals, _ = await snapshot.read(names, ())
        assert {total.value for total in totals.values()} == {11}
        await tasks.close()
