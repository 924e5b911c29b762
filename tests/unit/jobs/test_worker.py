"""What becomes of a task that can't be done at once. In tests/interleavings/simulation/jobs.py anything fails."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from flusher.cleanup import ROWS_A_STEP, CounterRemover, sweep_jobs
from flusher.jobs import TRIES, Adding, Compacting, PageOutcome, Resetting, Runner, Visit, Worker, existing
from shared.counters.reader import AllNames, Reader
from shared.counters.setter import COMPACT_FOR, Change, ChangeRequest, Compactor, Setter
from shared.model.buckets import DAY, Instant, Millis, StoreMillis
from shared.model.errors import (
    ContendedError,
    DamagedError,
    LostFileError,
    NewerError,
    RefusedError,
    SettingsError,
    TransientError,
    UnreadableError,
)
from shared.model.jobs import (
    ADD,
    COMPACT,
    DELETE,
    DONE,
    EXPORT,
    EXPORTS_LIVE,
    FAILED,
    RUNNING,
    Job,
    JobState,
    Task,
    lifetime_of_job,
    read,
    written,
)
from shared.model.words import SHARD_FULL, Commit, Guard, Receipt, ShardAdd
from shared.runtime.metrics import NEWER
from shared.runtime.retry import Backoff, Stop
from shared.sqlite.database import Database
from shared.sqlite.jobs import SqliteTasks
from tests.contracts.store import total
from tests.http.faults import failing
from tests.world.flushing import running
from tests.world.manual_clock import ManualClock
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.store import MemoryStore
from tests.world.memory.tasks import LeasedTasks

LIVE = Millis(16 * DAY)
LATER = StoreMillis(10**14)


class Picky(MemoryStore):
    """Refuses some counters for good."""

    refused: frozenset[str] = frozenset()

    async def apply(self, commit: Commit) -> Instant:
        if bad := self.refused.intersection(add.counter for add in commit.adds):
            raise RefusedError(f"none for {min(bad)}")
        return await super().apply(commit)


class Parts:
    """A worker on fakes."""

    def __init__(self, visits: Mapping[str, Visit] | None = None, page: int = 4) -> None:
        self.clock = ManualClock()
        self.store = Picky(self.clock)
        self.jobs = MemoryJobs()
        self.tasks = LeasedTasks(self.clock)
        self.overlay = ExactOverlay(self.clock)
        self.reader = Reader(self.store, self.overlay, self.clock, 0)
        self.names = AllNames(self.store, self.overlay)
        visits = {ADD: self.adding()} if visits is None else visits
        self.worker = Worker(self.tasks, self.jobs, self.store, self.names, visits, clock=self.clock, page=page)

    def adding(self, pick: Callable[[int], int] = lambda _: 0) -> Adding:
        return Adding(self.store, self.reader, self.overlay, exact=True, pick=pick)

    def compacting(self, *, alone: bool = True) -> Compacting:
        return Compacting(self.store, self.reader, Compactor(self.store, self.clock, DAY, alone=alone))

    async def start(self, kind: str = ADD) -> Task:
        now = int(self.clock.now() * 1000)
        await self.jobs.create(Job("j", kind, "", 10, now, StoreMillis(now + lifetime_of_job(kind, LIVE))))
        return Task("j")

    async def begun(self, kind: str = ADD, number: int = 10) -> Job:
        await self.start()
        return (await self.standing()).job._replace(kind=kind, number=number)

    async def failed(self, because: str, *, tasks: int | None = None) -> None:
        """Raise if the job has not ended by a failure for that reason."""
        standing = await self.standing()
        assert standing.state == FAILED
        assert because in standing.why
        assert tasks in {None, standing.progress.tasks}

    async def count(self, *names: str, value: int = 1) -> None:
        adds = tuple(ShardAdd(name, 0, value, 1) for name in names)
        await self.store.apply(Commit((Receipt(f"of {names} {value}", LATER),), adds))

    async def run(self) -> None:
        """All that waits."""
        while leases := await self.tasks.pull(10, 0):
            for lease in leases:
                await self.worker.work(lease.task)
            await self.tasks.ack([lease.token for lease in leases])

    async def standing(self) -> JobState:
        found = await self.jobs.get("j")
        assert found is not None
        return found

    async def totals(self) -> dict[str, int]:
        return {name: await total(self.store, name) for name in await self.store.names("", "", 1_000)}


async def test_counters_that_the_store_refuses_fail_alone_and_are_named() -> None:
    parts = Parts(page=50)
    names = [f"c{number:02}" for number in range(40)]
    await parts.count(*names)
    parts.store.refused = frozenset({"c03", "c04", "c17", "c31", "c39"})
    await parts.tasks.publish([await parts.start()])
    await parts.run()
    progress = (await parts.standing()).progress
    assert (progress.visited, progress.changed, progress.failed) == (40, 35, 5)
    assert progress.examples == tuple((name, f"none for {name}") for name in ("c03", "c04", "c17"))
    assert await parts.totals() == {name: 1 if name in parts.store.refused else 11 for name in names}


async def test_a_delete_job_that_is_killed_in_a_page_counts_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has deleted stays listed until the page is visited again, although flushers remove it later."""
    parts = Parts(page=50)
    await parts.count("a", "b", "c", "d")
    setter = Setter(parts.reader, parts.store, parts.overlay, parts.clock, LIVE)
    parts.worker.visits = {DELETE: Resetting(setter)}
    removal = CounterRemover(parts.store, parts.overlay, parts.clock, grace=120)
    task = await parts.start(DELETE)
    set_existing = setter.set_existing

    async def killed(counter: str, wish: ChangeRequest, receipt: str) -> Change | None:
        if counter > "b":
            await asyncio.sleep(0.01)
            raise asyncio.CancelledError
        return await set_existing(counter, wish, receipt)

    monkeypatch.setattr(setter, "set_existing", killed)
    with pytest.raises(asyncio.CancelledError):
        await parts.worker.work(task)
    monkeypatch.undo()
    assert await parts.totals() == {"a": 0, "b": 0, "c": 1, "d": 1}
    await removal.remove_once()
    parts.clock.turn(60)
    await removal.remove_once()
    await parts.worker.work(task)  # its lease has ended
    progress = (await parts.standing()).progress
    assert (progress.visited, progress.changed, progress.failed) == (4, 4, 0)
    parts.clock.turn(120)
    assert await removal.remove_once() == 2, "those that were seen first"


async def test_a_full_shard_is_left_alone() -> None:
    parts = Parts()
    await parts.count("a", value=SHARD_FULL)
    await parts.count("a", value=1)
    await parts.count("b")
    await parts.tasks.publish([await parts.start()])
    await parts.run()
    assert await parts.totals() == {"a": SHARD_FULL + 11, "b": 11}
    assert (await parts.store.shards(["a", "b"])) == {"a": 2, "b": 1}


async def test_a_page_that_was_added_to_in_part_gets_the_rest_alone() -> None:
    parts = Parts()
    await parts.count("a", "b", "c")
    job = await parts.begun()
    await parts.adding()(job, ["b"])
    assert await parts.adding()(job, ["a", "b", "c"]) == PageOutcome(3, 3)
    assert await parts.totals() == {"a": 11, "b": 11, "c": 11}


async def test_a_job_that_is_older_than_its_receipts_fails_and_changes_nothing_more() -> None:
    parts = Parts(page=2)
    await parts.count("a", "b", "c", "d", "e")
    await parts.worker.work(await parts.start())
    parts.clock.turn(LIVE / 1_000 - 3_600)
    assert (await parts.standing()).state == RUNNING
    parts.clock.turn(1)
    await parts.run()
    await parts.failed("longer than receipts live", tasks=1)
    assert sorted((await parts.totals()).values()) == [1, 1, 1, 11, 11]


async def test_a_worker_that_stood_still_inside_a_page_changes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another may have done the page, and the receipts that say so may be gone."""
    parts = Parts()
    await parts.count("a", "b")
    apply = parts.store.apply

    async def long_on_its_way(commit: Commit) -> Instant:
        parts.clock.turn(LIVE / 1_000)
        return await apply(commit)

    monkeypatch.setattr(parts.store, "apply", long_on_its_way)
    await parts.worker.work(await parts.start())
    await parts.failed("longer than receipts live")
    assert await parts.totals() == {"a": 1, "b": 1}


async def test_an_export_is_given_up_before_it_is_forgotten() -> None:
    parts = Parts({EXPORT: failing(AssertionError("nothing is left to look at"))})
    task = await parts.start(EXPORT)
    parts.clock.turn(EXPORTS_LIVE / 1_000 - 3_599)
    await parts.worker.work(task)
    await parts.failed("")


async def test_a_page_that_is_refused_for_good_ends_the_job_and_no_flusher() -> None:
    parts = Parts({ADD: failing(RefusedError("nothing of it"))})
    await parts.count("a")
    await parts.worker.work(await parts.start())
    await parts.failed("the page behind '' failed: nothing of it. Changes that were made stay", tasks=0)


@pytest.mark.parametrize("bug", [OverflowError("too large"), KeyError("x"), RuntimeError()])
async def test_a_bug_ends_the_job_and_no_flusher(bug: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Else each process that takes the task would end by it."""
    parts = Parts({ADD: failing(bug)})
    await parts.count("a")
    await parts.tasks.publish([await parts.start()])
    runner = Runner(parts.tasks, parts.worker, at_once=1, lease=60.0)
    async with running(runner.run) as task:
        while (await parts.standing()).state == RUNNING and not task.done():
            await asyncio.sleep(0)
    await parts.failed(f"a bug in Countersink ({bug!r})", tasks=0)
    await parts.failed("Changes that were made stay")
    (error,) = [record for record in caplog.records if record.exc_info]
    assert error.exc_info
    assert error.exc_info[1] is bug
    parts.clock.turn(LIVE / 1_000)
    assert not await parts.tasks.pull(1, 0)


@pytest.mark.parametrize(
    "broken", [DamagedError("damaged"), LostFileError("lost"), OSError("the disk"), MemoryError(), SettingsError("no")]
)
async def test_what_is_broken_itself_ends_the_process_and_not_the_job(broken: Exception) -> None:
    parts = Parts({ADD: failing(broken)})
    await parts.count("a")
    await parts.tasks.publish([await parts.start()])
    runner = Runner(parts.tasks, parts.worker, at_once=1, lease=60.0)
    with pytest.raises(ExceptionGroup) as caught:
        await runner.run(Stop(), 0)
    assert caught.value.exceptions == (broken,)
    assert (await parts.standing()).state == RUNNING
    assert await parts.tasks.pull(1, 0), "another process goes on with it"


async def test_a_task_that_can_not_be_done_now_lets_others_have_their_turn() -> None:
    parts = Parts()
    await parts.count("a")
    parts.worker.visits = {**parts.worker.visits, "polish": failing(TransientError("away"))}
    await parts.jobs.create(Job("unknown", "polish", "", created=int(parts.clock.now() * 1000), expires=LATER))
    await parts.tasks.publish([await parts.start(), Task("unknown")])
    waits = 0

    class Counting(Backoff):
        async def wait(self) -> None:
            nonlocal waits
            waits += 1

    runner = Runner(parts.tasks, parts.worker, at_once=1, lease=60.0, backoff=Counting)
    async with running(runner.run, 0):
        while waits < 3 * TRIES:
            await asyncio.sleep(0)
    (left,) = await parts.tasks.pull(10, 0)
    assert left.task.job == "unknown"
    assert (await parts.standing()).state == DONE


async def test_counters_that_can_not_be_compacted_fail_alone() -> None:
    parts = Parts()
    for number in range(3):
        await parts.store.apply(Commit((), (ShardAdd("a", number, SHARD_FULL, 3), ShardAdd("b", number, 1, 3))))
    job = await parts.begun(COMPACT, 1)
    assert await parts.compacting()(job, ["a", "b", "c"]) == PageOutcome(2, 1, [("a", "a holds too much for 1 shard")])
    assert await parts.store.shards(["a", "b"]) == {"a": 3, "b": 1}


@pytest.mark.parametrize("age", [1.0, 1_000.0])
async def test_a_counter_that_is_hot_does_not_hold_up_the_job(age: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody wrote to it for long, it is the store that takes nothing, and the page is tried again."""
    parts = Parts()

    async def never(*_: object) -> int:
        parts.clock.turn(COMPACT_FOR)
        raise ContendedError("others were first")

    async def ages(shards: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], float]:
        return dict.fromkeys(shards, age)

    monkeypatch.setattr(parts.store, "compact", never)
    monkeypatch.setattr(parts.store, "ages", ages)
    await parts.store.apply(Commit((), (ShardAdd("a", 1, 1, 2),)))
    job = await parts.begun(COMPACT, 1)
    compacting = parts.compacting()
    if age < COMPACT_FOR:
        why = "it is written to all the time, on all its shards"
        assert await compacting(job, ["a"]) == PageOutcome(1, 0, [("a", why)])
    else:
        with pytest.raises(ContendedError):
            await compacting(job, ["a"])


async def test_a_process_beside_an_ndb_application_ends_a_job_that_would_compact() -> None:
    parts = Parts()
    parts.worker.visits = {COMPACT: parts.compacting(alone=False)}
    await parts.store.apply(Commit((), (ShardAdd("a", 1, 1, 99),)))
    await parts.worker.work(await parts.start(COMPACT))
    await parts.failed("COUNTERSINK_NDB_WRITERS")


async def test_a_deleted_counter_that_is_removed_just_now_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    await parts.count("a")
    await parts.store.apply(Commit((), (ShardAdd("a", 0, -1, 1),), guard=("a", Guard(deleted=True))))
    shards = parts.store.shards

    async def late(counters: Sequence[str]) -> Mapping[str, int]:
        there = await shards(counters)
        assert await parts.store.remove("a")
        return there

    monkeypatch.setattr(parts.store, "shards", late)
    assert await existing(parts.store, parts.reader, ["a"], exact=True) == {}


async def test_children_that_were_never_published_are_when_the_task_comes_again() -> None:
    parts = Parts(page=2)
    await parts.count(*"abcdefgh")
    task = await parts.start()
    await parts.worker.work(task)
    first = [*await parts.tasks.pull(100, 0)]
    await parts.tasks.ack([lease.token for lease in first])
    await parts.worker.work(first[0].task)
    await parts.tasks.ack([lease.token for lease in await parts.tasks.pull(100, 0)])
    await parts.worker.work(task)
    again = [lease.task for lease in await parts.tasks.pull(100, 0)]
    assert again == [lease.task for lease in first if lease != first[0]], "what is done of them is not needed"
    await parts.worker.work(task._replace(again=True))
    assert len(await parts.tasks.pull(100, 0)) == len(first)


async def test_whoever_goes_through_it_once_more_finds_what_was_lost_below() -> None:
    parts = Parts(page=2)
    await parts.count(*"abcdefghijklmnop")
    task = await parts.start()
    await parts.worker.work(task)
    lost = False
    while leases := await parts.tasks.pull(1, 0):
        if lost or leases[0].task.range.depth < 3:
            await parts.worker.work(leases[0].task)
        lost = lost or leases[0].task.range.depth == 3
        await parts.tasks.ack([leases[0].token])
    assert lost
    assert (await parts.standing()).state == RUNNING
    await parts.tasks.publish([task])
    await parts.run()
    assert (await parts.standing()).state == RUNNING
    await parts.tasks.publish([task._replace(again=True)])
    await parts.run()
    assert (await parts.standing()).state == DONE
    assert set((await parts.totals()).values()) == {11}


async def test_whoever_goes_through_it_once_more_does_so_also_where_another_was_faster() -> None:
    """The other is gone then, and what it had published with it."""
    parts = Parts(page=2)
    await parts.count(*"abcdefghijklmnop")
    task = await parts.start()
    adding, own = parts.adding(), LeasedTasks(parts.clock)

    async def late(job: Job, names: Sequence[str]) -> PageOutcome:
        if not (await parts.standing()).progress.tasks:
            await parts.worker.work(task)
            while leases := [one for one in await parts.tasks.pull(100, 0) if one.task.range.depth < 4]:
                for lease in leases:
                    await parts.worker.work(lease.task)
        return await adding(job, names)

    worker = Worker(own, parts.jobs, parts.store, parts.names, {ADD: late}, clock=parts.clock, page=2)
    await worker.work(task._replace(again=True))
    assert (await parts.standing()).open
    while leases := await own.pull(1, 0):
        await worker.work(leases[0].task)
        await own.ack([leases[0].token])
    assert (await parts.standing()).state == DONE
    assert set((await parts.totals()).values()) == {11}


async def test_old_jobs_are_forgotten_by_the_stores_time_and_go_no_further() -> None:
    parts = Parts()
    await parts.count("a")
    task = await parts.start()
    for seconds, rows in ((0, 0), (lifetime_of_job(ADD, LIVE) / 1_000 - 1, 0), (2, 1)):
        parts.clock.turn(seconds)
        assert await parts.jobs.sweep(await parts.store.now(), ROWS_A_STEP) == rows
    await sweep_jobs(parts.jobs, parts.store)
    assert await parts.jobs.get("j") is None
    await parts.worker.work(task)
    assert await parts.totals() == {"a": 1}


async def test_an_add_does_not_undo_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    await parts.count("b")
    await parts.store.apply(Commit((), tuple([ShardAdd("a", shard, 1, 9) for shard in range(9)])))
    adding, job = parts.adding(lambda most: most - 1), await parts.begun()
    apply = parts.store.apply

    async def after_a_compaction(commit: Commit) -> Instant:
        await parts.store.compact("a", 1, Receipt("k", LATER))
        monkeypatch.undo()
        return await apply(commit)

    monkeypatch.setattr(parts.store, "apply", after_a_compaction)
    assert await adding(job, ["a", "b"]) == PageOutcome(2, 2)
    assert await parts.store.shards(["a", "b"]) == {"a": 1, "b": 1}
    assert await parts.totals() == {"a": 19, "b": 11}


def test_a_task_says_its_version_if_it_is_another_one() -> None:
    task = Task("j")
    assert read(written(task)) == task
    with pytest.raises(NewerError, match="run newer flushers"):
        read(b'{"version": 2, "whatever": 1}')
    for rubbish in (b"[]", b'{"version": 1}', b"1", b"x"):
        with pytest.raises(UnreadableError):
            read(rubbish)


async def test_a_task_of_another_version_waits_in_the_file_and_what_is_none_is_dropped(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts()
    tasks = SqliteTasks(database, parts.clock, 60.0)
    rows = [(b'{"version": 2}',), (b"rubbish",)]
    await database.write(lambda db: db.executemany("INSERT INTO tasks (data) VALUES (?)", rows).rowcount)
    await tasks.publish([await parts.start()])
    waits = database.reader()
    async with running(Runner(tasks, parts.worker, at_once=3, lease=60.0).run):
        while waits.execute("SELECT data FROM tasks").fetchall() != rows[:1]:
            await asyncio.sleep(0.001)
    assert (await parts.standing()).state == DONE
    assert "a task of a job can't be read, and is dropped: this is not a task" in caplog.text
    assert not await tasks.pull(10, 0), "it comes again when its lease has ended"
    parts.clock.turn(61)
    assert [lease.data for lease in await tasks.pull(10, 0)] == [b'{"version": 2}']


async def test_a_job_of_an_unknown_kind_takes_no_place_from_others() -> None:
    """Its tasks are as many as are done at once."""
    parts, before = Parts(), NEWER.get()
    for name in ("new1", "new2", "new3"):
        await parts.jobs.create(Job(name, "invert", "", 0, int(parts.clock.now() * 1000), LATER))
        await parts.tasks.publish([Task(name)])
    runner = Runner(parts.tasks, parts.worker, at_once=3, lease=60.0, backoff=lambda: Backoff(0.0))
    async with running(runner.run):
        while NEWER.get() < before + 3:
            await asyncio.sleep(0.001)
        await parts.tasks.publish([await parts.start()])
        while (await parts.standing()).state == RUNNING:
            await asyncio.sleep(0.001)
    assert NEWER.get() == before + 3, "they were not handed out again before their leases ended"
    parts.clock.turn(61)
    assert len(await parts.tasks.pull(10, 0)) == 3
