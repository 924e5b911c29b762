"""What keeps jobs and hands out their tasks: the fakes, and the SQLite file."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.memory import MemoryTasks
from shared.model.buckets import StoreMillis
from shared.model.errors import RefusedError, ShareError, StorageFullError
from shared.model.jobs import EXPORT, FAILED, Task
from shared.ports.store import Jobs
from shared.sqlite.database import Database, Reserve
from shared.sqlite.jobs import ExportRoom, SqliteJobs, SqliteTasks
from tests.contracts.broker import turning
from tests.contracts.jobs import JOB, JobsContract, done, standing
from tests.contracts.tasks import TASKS, TasksContract, Waiting
from tests.world.manual_clock import ManualClock
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.tasks import LeasedTasks


def make_waiting(kind: type[LeasedTasks] = LeasedTasks) -> Waiting:
    clock = ManualClock()
    tasks = kind(clock)
    return Waiting(tasks, tasks, turning(clock, 61))


class TestMemoryJobs(JobsContract):
    @pytest.fixture
    async def jobs(self) -> Jobs:
        return MemoryJobs()


class TestSqliteJobs(JobsContract):
    @pytest.fixture
    async def jobs(self, database: Database) -> Jobs:
        return SqliteJobs(database)


class GivenBackContract:
    """Of queues that have an order. What can't be done now must not be all that is ever handed out."""

    async def test_what_is_given_back_comes_after_the_others(self, waiting: Waiting) -> None:
        await waiting.tasks.publish(TASKS[:2])
        (first,) = await waiting.tasks.pull(1, 0)
        await waiting.tasks.give_back([first.token])
        (second,) = await waiting.tasks.pull(1, 0)
        assert second.task != first.task
        (again,) = await waiting.tasks.pull(1, 0)
        assert (again.task, again.token != first.token) == (first.task, True)
        await waiting.tasks.ack([first.token])
        await waiting.lapse()
        assert len(await waiting.tasks.pull(9, 0)) == 2


class TestLeasedTasks(TasksContract, GivenBackContract):
    @pytest.fixture
    async def waiting(self) -> Waiting:
        return make_waiting()


class TestMemoryTasks(TasksContract, GivenBackContract):
    """Its leases end only when their holder ends them."""

    @pytest.fixture
    async def waiting(self) -> Waiting:
        tasks = MemoryTasks()

        async def lapse() -> None:
            await tasks.give_back([*tasks._held])

        return Waiting(tasks, tasks, lapse)


class TestSqliteTasks(TasksContract, GivenBackContract):
    @pytest.fixture
    async def waiting(self, database: Database, another: Database) -> Waiting:
        clock = ManualClock()
        return Waiting(SqliteTasks(database, clock, 60), SqliteTasks(another, clock, 60), turning(clock, 61))


@dataclass
class Disk:
    """Has as much space as a test says."""

    free: int

    def look(self, _: Path) -> os.statvfs_result:
        return os.statvfs_result((1, 1, 2**40, self.free, self.free, 0, 0, 0, 0, 255))


async def test_what_is_kept_of_tasks_leaves_the_reserve_of_the_disk(database: Database) -> None:
    """A job waits for space with the page that it visits, and goes on."""
    disk = Disk(2**30)
    database.reserve = Reserve(database.path, 2**20, look=disk.look)
    jobs = SqliteJobs(database)
    await jobs.create(JOB)
    first = done(Task("j"), "p3")
    assert await jobs.record(first) == first
    disk.free -= 2**30
    with pytest.raises(StorageFullError):
        await jobs.record(done(first.children[0]))
    there = await jobs.record(first)
    assert there is not None
    assert there.task == first.task
    disk.free += 2**30
    assert await jobs.record(done(first.children[0]))
    assert (await standing(jobs)).open == 0


async def test_exports_leave_twice_the_reserve_of_the_disk(database: Database) -> None:
    """So that they never are the reason why increments are refused."""
    disk = Disk(100 * 2**20)
    database.reserve = Reserve(database.path, 64 * 2**20, look=disk.look)
    jobs = SqliteJobs(database)
    export = JOB._replace(kind=EXPORT, number=0)
    with pytest.raises(StorageFullError, match="exports leave the rest to increments: free some space, or delete"):
        await jobs.create(export)
    await database.write(lambda db: database.reserve.check(db, 0))
    disk.free = 2**30
    await jobs.create(export)
    disk.free = 100 * 2**20
    with pytest.raises(StorageFullError):
        await jobs.record(done(Task("j"), chunk=b"1"))
    await jobs.create(JOB._replace(id="k"))
    await jobs.record(done(Task("k")))


async def test_a_task_that_ends_after_its_export_was_deleted_keeps_nothing(database: Database) -> None:
    jobs = SqliteJobs(database)
    await jobs.create(JOB._replace(kind=EXPORT, number=0))
    await jobs.discard("j", 1_700, "deleted", 10)
    assert await jobs.record(done(Task("j"), chunk=b"1")) is None
    assert await jobs.chunks("j", "", 10) == []


async def test_an_export_that_is_refused_room_frees_it(database: Database) -> None:
    """It fails, and the sweep deletes what it had written."""
    jobs = SqliteJobs(database, ExportRoom(10, 2_000))
    await jobs.create(JOB._replace(kind=EXPORT, number=0))
    first = done(Task("j"), "p3", chunk=bytes(1_500))
    await jobs.record(first)
    with pytest.raises(RefusedError, match="COUNTERSINK_MAX_EXPORT_BYTES"):
        await jobs.record(done(first.children[0], chunk=bytes(600)))
    await jobs.end("j", FAILED, 1_600)
    await jobs.create(JOB._replace(id="k", kind=EXPORT, number=0))
    with pytest.raises(RefusedError):
        await jobs.record(done(Task("k"), chunk=bytes(600)))
    assert await jobs.sweep(StoreMillis(0), 10) == 1
    assert await jobs.record(done(Task("k"), chunk=bytes(2_000)))
    with pytest.raises(ShareError, match="COUNTERSINK_MAX_EXPORT_BYTES allows 2,000 bytes of exports, and 2,000 are"):
        await jobs.create(JOB._replace(id="l", kind=EXPORT, number=0))


async def test_an_owner_may_keep_a_part_of_all_exports(database: Database) -> None:
    """It is a quarter of their number, and of their bytes. What has no owner may take all that is left."""
    jobs = SqliteJobs(database, ExportRoom(12, 10_000))
    export = JOB._replace(kind=EXPORT, number=0, expires=StoreMillis(2**42))
    for number in range(3):
        await jobs.create(export._replace(id=f"me/{number}"))
    with pytest.raises(
        ShareError, match=r"MAX_EXPORTS allows 12 exports, the owner 'me' may have 3 of them, and 3 are"
    ):
        await jobs.create(export._replace(id="me/3"))
    await jobs.create(export._replace(id="you/0"))
    await jobs.discard("me/1", 1_600, "deleted", 10)
    await jobs.create(export._replace(id="me/3"))
    first = done(Task("me/0"), "p3", chunk=bytes(1_500))
    await jobs.record(first)
    with pytest.raises(RefusedError, match=r"of one owner may take 2500 bytes in all \(COUNTERSINK_MAX_EXPORT_BYTES\)"):
        await jobs.record(done(Task("me/3"), chunk=bytes(1_001)))
    assert await jobs.record(done(Task("me/3"), chunk=bytes(1_000)))
    await jobs.discard("me/2", 1_600, "deleted", 10)
    with pytest.raises(
        ShareError, match="allows 10,000 bytes of exports, the owner 'me' may have 2,500 of them"
    ) as refused:
        await jobs.create(export._replace(id="me/4"))
    assert refused.value.retry_after > 3_600
    await jobs.create(export._replace(id="all"))
    assert await jobs.record(done(Task("all"), chunk=bytes(7_500)))
    with pytest.raises(ShareError, match="allows 10,000 bytes of exports, and 10,000 are kept"):
        await jobs.create(export._replace(id="you/1"))
