"""Messages and tasks of a newer version are left to newer processes, and delay nothing else."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from flusher.dead_letters.letters import open_letter
from flusher.flush.flusher import LEFT_FOR
from flusher.jobs.worker import Runner, Worker
from shared.counters.reader import AllNames
from shared.memory.overlay import ProcessOverlay
from shared.model import jobs
from shared.model.buckets import BrokerMillis, Instant, StoreMillis
from shared.model.errors import NewerError, TransientError, UnreadableError
from shared.model.jobs import Job, Task
from shared.model.words import Delivery, Envelope, Letter, Message
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import NEWER
from shared.runtime.retry import Backoff
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.sqlite.jobs import SqliteTasks
from shared.wire.codec import TYPE, decode, encode, increments_of
from tests.http.faults import failing
from tests.world.flushing import Bench, running
from tests.world.manual_clock import ManualClock
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.store import MemoryStore
from tests.world.memory.tasks import LeasedTasks

V2 = {"ce-id": "e2", "ce-source": "countersink", "ce-type": "countersink.envelope.v2"}
NEW = Message(b'{"counter":"a","delta":5}', V2)
NOBODY = 60.0


def newer() -> float:
    return float(NEWER.get())


@pytest.mark.parametrize(
    "attributes",
    [
        V2, V2 | {"ce-source": "another"}, V2 | {"ce-type": "something else"},
        {"ce-source": "countersink", "ce-id": "1"}, {"ce-type": "countersink.something"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("data", [b'{"counter":"a"}', b"", b"\xff not even JSON"])
def test_what_is_ours_and_not_known_is_neither_foreign_nor_rubbish(attributes: Mapping[str, str], data: bytes) -> None:
    message = Message(data, attributes)
    with pytest.raises(NewerError, match="run that version, too"):
        decode(Delivery("t", message, "1", BrokerMillis(1)), "topic")
    assert increments_of(message) == 0


def test_what_others_publish_and_what_is_ours_is_read_as_before() -> None:
    for attributes in ({}, {"ce-source": "theirs", "ce-id": "1", "ce-type": "org.example"}, {"ce-type": ""}):
        assert decode(Delivery("t", Message(b'{"counter":"a"}', attributes), "1", BrokerMillis(1)), "topic")[0].foreign
    assert not decode(Delivery("t", encode(Envelope("e", {"a": 1}, {})), "1", BrokerMillis(1)), "topic")[0].foreign
    with pytest.raises(UnreadableError):
        decode(Delivery("t", Message(b"rubbish", {"ce-type": TYPE}), "1", BrokerMillis(1)), "topic")


async def test_it_is_neither_counted_nor_buried_nor_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    bench, before = Bench(), newer()
    await bench.broker.publish([NEW, NEW])
    await bench.flush(Envelope("e1", {"a": 1}, {}))
    assert await bench.total() == 1
    assert (bench.broker.buried(), bench.broker.unburied()) == ({}, 2)
    assert newer() == before + 2
    (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "countersink.envelope.v2" in said.getMessage()


async def test_it_comes_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """To any flusher, so that a newer one has its turn; and the log stays short."""
    bench = Bench()
    await bench.broker.publish([NEW])
    pauses, at = [], bench.clock.monotonic()
    for _ in range(4):
        while not await bench.flusher.pull_once(0):
            bench.clock.turn(1)
        pauses.append(bench.clock.monotonic() - at)
        at = bench.clock.monotonic()
    assert pauses == [0, LEFT_FOR, LEFT_FOR, LEFT_FOR]
    assert len(caplog.records) <= 1 + sum(pauses) / LEFT_FOR


async def test_any_number_of_them_leaves_room_for_others() -> None:
    """They are more than a window holds."""
    bench = Bench()
    large = Message(NEW.data + b" " * 1_000, V2)
    await bench.broker.publish([large] * 60)
    await bench.publish(Envelope("e1", {"a": 1}, {}))
    async with running(bench.flusher.run):
        while await bench.total() != 1:
            bench.clock.turn(0.5)
            await asyncio.sleep(0.001)


async def test_it_is_not_applied_so_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of what is held is what others conclude from that nothing older is unapplied."""
    bench, told = Bench(), list[int | None]()
    see = bench.flusher._see_oldest
    monkeypatch.setattr(bench.flusher, "_see_oldest", lambda pulled: told.append(see(pulled)))
    first = int(bench.clock.now() * 1000)
    await bench.broker.publish([NEW, NEW])
    await bench.flusher.pull_once(0)
    bench.clock.turn(LEFT_FOR - 1)
    await bench.flusher.pull_once(0)
    bench.clock.turn(2)
    for held in bench.broker._messages.values():
        held.until = bench.clock.now() + NOBODY  # another has them
    await bench.flusher.pull_once(0)
    assert told == [first, first, None]


async def test_a_broker_that_is_away_meanwhile_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await bench.broker.publish([NEW])
    monkeypatch.setattr(bench.broker, "extend", failing(TransientError("away")))
    assert await bench.flusher.pull_once(0) == 1
    bench.clock.turn(61)
    assert await bench.flusher.pull_once(0) == 1


async def test_readings_of_a_file_are_not_exact_while_one_waits(tmp_path: Path) -> None:
    """It may add to any counter."""
    database = Database(tmp_path / "countersink.db")
    publisher = SqlitePublisher(database, SystemClock(), 10**6)
    broker = SqliteSubscription(database, SystemClock(), 60.0)
    overlays = [SqliteOverlay(database, topic_of(database)) for _ in range(2)]
    assert [(await one.view(["b"]))["b"].exact for one in overlays] == [True, True]
    await publisher.publish([encode(Envelope("e", {"b": 1}, {})), NEW])
    assert [(await one.view(["b", "c"]))[name].exact for one in overlays for name in "bc"] == [False] * 4
    held = await broker.pull(10, 10**6, 0)
    await broker.ack([one.token for one in held if one.message.attributes == V2], Instant(3))
    overlays.append(SqliteOverlay(database, topic_of(database)))
    assert [(await one.view(["b", "c"]))[name].exact for one in overlays for name in "bc"] == [True] * 6
    await database.close()


async def test_a_spool_forwards_what_it_does_not_know(tmp_path: Path) -> None:
    from ingest.accept.spool import Spool  # noqa: PLC0415 (nothing else here is of ingest)

    database, clock = Database(tmp_path / "spool.db"), SystemClock()
    queue = SqlitePublisher(database, clock, 10**6)
    await queue.publish([NEW])
    bench = Bench()
    spool = Spool(bench.broker, queue, SqliteSubscription(database, clock, 60.0), clock, 60.0)
    assert await spool.forward_once() == 1
    (one,) = await bench.broker.pull(1, 10**6, 0)
    assert (one.message.data, one.message.attributes) == (NEW.data, V2)
    await database.close()


def test_a_dead_letter_of_it_is_left() -> None:
    opened = open_letter(Letter(Delivery("t", NEW, "1", BrokerMillis(1)), "why"), "topic")
    assert opened.envelopes == ()
    assert "countersink.envelope.v2" in (opened.flaw or "")


def test_a_task_says_its_version_if_it_is_another_one() -> None:
    task = Task("j")
    assert jobs.read(jobs.written(task)) == task
    with pytest.raises(NewerError, match="run newer flushers"):
        jobs.read(b'{"version": 2, "whatever": 1}')
    for rubbish in (b"[]", b'{"version": 1}', b"1", b"x"):
        with pytest.raises(UnreadableError):
            jobs.read(rubbish)


async def test_a_task_of_another_version_waits_in_the_file_and_what_is_none_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database, clock = Database(tmp_path / "countersink.db"), ManualClock()
    store, kept, tasks = MemoryStore(clock), MemoryJobs(), SqliteTasks(database, clock, 60.0)
    rows = [(b'{"version": 2}',), (b"rubbish",)]
    await database.write(lambda db: db.executemany("INSERT INTO tasks (data) VALUES (?)", rows).rowcount)
    await tasks.publish([Task("j")])
    worked = list[Task]()

    class Known(Worker):
        async def work(self, task: Task) -> None:
            worked.append(task)

    names = AllNames(store, ProcessOverlay(clock))
    runner = Runner(tasks, Known(tasks, kept, store, names, {}, clock=clock), at_once=3, lease=60.0)
    waits = database.reader()
    async with running(runner.run):
        while waits.execute("SELECT data FROM tasks").fetchall() != [(b'{"version": 2}',)]:
            await asyncio.sleep(0.001)
    assert worked == [Task("j")]
    assert "a task of a job can't be read, and is dropped: this is not a task" in caplog.text
    assert not await tasks.pull(10, 0), "it comes again when its lease has ended"
    clock.turn(61)
    assert [lease.data for lease in await tasks.pull(10, 0)] == [b'{"version": 2}']
    await database.close()


async def test_a_job_of_an_unknown_kind_takes_no_place_from_others() -> None:
    """Its tasks are as many as are done at once."""
    clock = ManualClock()
    store, kept, tasks = MemoryStore(clock), MemoryJobs(), LeasedTasks(clock)
    names = AllNames(store, ProcessOverlay(clock))
    worker = Worker(tasks, kept, store, names, {}, clock=clock)
    done = asyncio.Event()

    class Known(Worker):
        async def work(self, task: Task) -> None:
            if task.job == "known":
                done.set()
                return
            await worker.work(task)

    for number in range(3):
        await kept.create(Job(f"new{number}", "invert", "", 0, int(clock.now() * 1000), StoreMillis(10**14)))
        await tasks.publish([Task(f"new{number}")])
    known = Known(tasks, kept, store, names, {}, clock=clock)
    runner = Runner(tasks, known, at_once=3, lease=60.0, backoff=lambda: Backoff(0.0))
    before = newer()
    async with running(runner.run):
        while newer() < before + 3:
            await asyncio.sleep(0.001)
        await tasks.publish([Task("known")])
        await done.wait()
    assert newer() == before + 3, "they were not handed out again before their leases ended"
    clock.turn(61)
    assert len(await tasks.pull(10, 0)) == 3
