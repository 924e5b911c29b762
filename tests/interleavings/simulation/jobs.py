"""Workers that do one job on a network that loses and repeats, while they are killed, under one seed."""

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from itertools import count
from typing import Any

import orjson

from flusher.flush.flusher import Flusher
from flusher.flush.window import FlushPolicy
from flusher.jobs import Adding, Compacting, Exporting, Resetting, Runner, Visit, Worker
from shared.counters.jobs import JobResults
from shared.counters.reader import AllNames, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Compactor, Setter
from shared.model.buckets import DAY, Millis, StoreMillis
from shared.model.jobs import (
    ADD,
    ALL,
    COMPACT,
    DELETE,
    DONE,
    EXPIRE,
    EXPORT,
    RESET,
    TELL_BEFORE,
    Job,
    JobState,
    Lease,
    Task,
    lifetime_of_job,
)
from shared.model.receipts import lifetime, read_note
from shared.model.words import Envelope, Reading
from shared.runtime.retry import Stop
from shared.wire.codec import encode
from tests.interleavings.simulation.loop import VirtualLoop
from tests.interleavings.simulation.network import Network
from tests.interleavings.simulation.system import LoopClock
from tests.interleavings.steps.changes import ChangedStore
from tests.interleavings.steps.network import Remote, named, remote_overlay, remote_store
from tests.world.flushing import tools_of
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.tasks import LeasedTasks

LEASE = 2.0
LIVE = lifetime(Millis(7 * DAY), of_client=True)
LONGEST = 600.0
"""Virtual seconds in which a job is done."""
PREFIX = "p:"


class RemoteTasks(Remote):
    """The queue."""

    calls = named("publish", "extend", "ack", give_back="give back")

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        leases: Sequence[Lease] = await self._call("pull", lambda: self._server.pull(limit, 0))
        if not leases:
            await asyncio.sleep(wait)
        return leases


class JobWorld:
    """One job, and what must be true of it."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # of pauses
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.network = Network(self.random, loss=self.random.choice([0.0, 0.02, 0.1]))
        self.broker = MemoryBroker(self.clock, LEASE)
        self.store = ChangedStore(self.clock, self.broker)
        self.overlay = MemoryOverlay(self.broker)
        self.jobs = MemoryJobs()
        self.tasks = LeasedTasks(self.clock, LEASE)
        self.names = (f"process {number}" for number in count())
        self.workers: list[str] = []
        self.mistakes: list[BaseException] = []
        self.page = self.random.randint(2, 12)
        self.counted: dict[str, list[int]] = {}
        """Deltas of each counter, in their order. Each sum of them is that of one of its parts alone."""
        self.before: dict[str, int] = {}
        """How many deltas the counters had that were there when the job began."""
        self.after: dict[str, int] = {}
        """And all counters, when it was done."""
        now = int(self.clock.now() * 1000)
        kind = self.random.choice([ADD, ADD, RESET, DELETE, EXPIRE, EXPORT, COMPACT])
        number = {ADD: self.random.choice([2, -2, 7 * 4**15]), COMPACT: self.random.choice([1, 2])}.get(kind, 0)
        self.job = Job("j", kind, PREFIX, number, now, StoreMillis(now + lifetime_of_job(kind, LIVE)))
        self.large: set[str] = set()
        """Counters that had more shards when the job began than a compaction leaves."""
        self.grown: set[str] = set()
        """Those that were given some meanwhile."""

    def run(self) -> None:
        self.loop.run_to_end(self._main())

    async def _main(self) -> None:
        self._start_flusher()
        for _ in range(self.random.randint(0, 120)):
            await self._count_new()
        await asyncio.sleep(self.random.choice([0, 0.2, 5]))  # all, some or nothing of it is pending
        self.large, self.grown = self.grown, set()
        self.before = {name: len(deltas) for name, deltas in self.counted.items()}
        for _ in range(self.random.randint(1, 3)):
            self._start()
        self.job = self.job._replace(created=int(self.clock.now() * 1000))
        await self.jobs.create(self.job)
        await self.tasks.publish([Task(self.job.id)])
        faults = [self._kill, self._kill, self._freeze, self._ask_again, self._count_new, self._count_on]
        for _ in range(self.random.randint(0, 25)):
            await asyncio.sleep(self.random.expovariate(8))
            await self.random.choice(faults)()
            self.check_mistakes()
        self.network.loss = 0.0
        self.network.stopped.clear()
        await self._settle()
        self.after = {name: len(deltas) for name, deltas in self.counted.items()}
        await self.check()
        await self._count_on()
        await self.tasks.publish([Task(self.job.id, again=True)])
        await self._settle()
        await self.check()

    async def _settle(self) -> None:
        until = self.loop.time() + LONGEST
        while len(self.tasks) or self.broker.unburied() or (await self.standing()).state != DONE:
            self.check_mistakes()
            if self.loop.time() > until:
                raise AssertionError("the job is never done")
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)  # what was late has come

    async def standing(self) -> JobState:
        standing = await self.jobs.get(self.job.id)
        assert standing is not None
        return standing

    async def check(self) -> None:
        """Each counter that was there was visited once; others were or not; and all says so."""
        standing = await self.standing()
        progress = standing.progress
        assert (standing.state, standing.open, progress.share, progress.failed) == (DONE, 0, ALL, 0)
        lines: list[bytes] = []
        if self.job.kind in {EXPORT, *TELL_BEFORE}:
            pages = JobResults(self.jobs, self.store).pages("j")
            lines = [line for page in [page async for page in pages] for line in page.splitlines()]
        exported: dict[str, int] = dict(orjson.loads(line).values() for line in lines)
        assert [*exported] == sorted(exported)
        assert len(lines) == len(exported)
        readings = await Reader(self.store, self.overlay, self.clock, 0.0).read([*self.counted], 0)
        visited = 0
        for reading in readings:
            done = self._visits(reading, exported)
            visited += done
            if not reading.name.startswith(PREFIX):
                assert not done, reading
            elif reading.name in self.before:
                assert done or self.job.kind == EXPIRE, reading  # which leaves what was changed meanwhile
        old = 0 if self.job.kind == EXPIRE else sum(name.startswith(PREFIX) for name in self.before)
        # One that was made meanwhile may have been there for somebody who was killed, and not for who did his task.
        assert old <= progress.visited <= visited
        if self.job.kind == COMPACT:
            await self._check_compacted(progress.changed)
        else:
            assert progress.changed == (0 if self.job.kind == EXPORT else progress.visited)
        await self._check_accounts()

    async def _check_compacted(self, changed: int) -> None:
        """A counter that was given shards meanwhile may have been visited before or afterwards."""
        large, grown = ([name for name in names if name.startswith(PREFIX)] for names in (self.large, self.grown))
        assert len(large) <= changed <= len({*large, *grown})
        numbers = await self.store.shards(large)
        assert all(numbers[name] <= self.job.number for name in large if name not in grown)

    def _visits(self, reading: Reading, exported: Mapping[str, int]) -> int:
        """Once, or never; all else is no value that it can have."""
        name, value, kind = reading.name, reading.value, self.job.kind
        deltas = self.counted[name]
        begin, end = self.before.get(name, 0), self.after[name]
        assert reading.exact
        if kind == ADD:
            assert value in {sum(deltas), sum(deltas) + self.job.number}, reading
            return value != sum(deltas)
        if kind == COMPACT:
            assert value == sum(deltas), reading
            return name.startswith(PREFIX)  # nobody can tell
        if kind == EXPORT:
            assert value == sum(deltas), reading
            if name in exported:
                assert exported[name] in {sum(deltas[:number]) for number in range(begin, end + 1)}, reading
            return name in exported
        # What was counted before the visit is gone, and no more; and that is what the job says.
        kept = {sum(deltas[number:]) for number in range(begin, end + 1)}
        assert value in kept | {sum(deltas)}, reading
        assert value + exported.get(name, 0) == sum(deltas), reading
        assert reading.exists == (kind == RESET or value != 0), reading
        return name in exported

    async def _check_accounts(self) -> None:
        """What receipts say is what shards hold."""
        said: dict[str, int] = {}
        async with self.store.audit_data() as data:
            async for page in data.receipts():
                for kept in page:
                    for name, delta in read_note(kept.receipt.note).sums.items():
                        said[name] = said.get(name, 0) + delta
            held = dict.fromkeys(said, 0)
            async for shards in data.shards():
                for shard in shards:
                    held[shard.counter] += shard.held
        assert said == held

    def check_mistakes(self) -> None:
        for mistake in self.mistakes:
            raise mistake

    async def _count_new(self) -> None:
        name = f"{self.random.choice([PREFIX, PREFIX, 'q'])}{self.random.randint(0, 9_999):04}"
        await self._count(name)
        if self.random.random() < 0.2:
            await self.store.raise_shards(name, 3)
            self.grown.add(name)

    async def _count_on(self) -> None:
        for name in self.random.sample(sorted(self.counted), min(5, len(self.counted))):
            await self._count(name)

    async def _count(self, name: str) -> None:
        """Accepted at once; a flusher applies it."""
        deltas = self.counted.setdefault(name, [])
        deltas.append(4 ** len(deltas))
        await self.broker.publish([encode(Envelope(f"{name}-{len(deltas)}", {name: deltas[-1]}, created=1))])

    async def _ask_again(self) -> None:
        """Somebody asks for the same job again."""
        await self.jobs.create(self.job)
        await self.tasks.publish([Task(self.job.id, again=self.random.random() < 0.5)])

    async def _kill(self) -> None:
        owner = self.workers.pop(self.random.randrange(len(self.workers)))
        self.network.dead.add(owner)
        self.loop.kill(owner)
        self._start()

    async def _freeze(self) -> None:
        """Long enough for its leases to run out: it comes back as a zombie."""
        self.network.stopped[self.random.choice(self.workers)] = self.loop.time() + self.random.uniform(0.1, 3 * LEASE)

    def _start(self) -> None:
        owner = next(self.names)
        tasks: Any = RemoteTasks(self.network, owner, self.tasks)
        jobs: Any = Remote(self.network, owner, self.jobs, named("create", "get", "record", "recorded", "end"))
        store = remote_store(self.network, owner, self.store)
        overlay = remote_overlay(self.network, owner, self.overlay)
        reader = Reader(store, overlay, self.clock, 1.0)
        resetting = Resetting(Setter(reader, store, overlay, self.clock, LIVE, pick=self.random.randrange))
        visits: dict[str, Visit] = {
            ADD: Adding(store, reader, overlay, exact=True, pick=self.random.randrange),
            RESET: resetting,
            DELETE: resetting,
            EXPIRE: resetting,
            EXPORT: Exporting(reader, SeriesReader(store, overlay, self.clock, ())),
            COMPACT: Compacting(store, reader, Compactor(store, self.clock, Millis(7 * DAY))),
        }
        worker = Worker(tasks, jobs, store, AllNames(store, overlay), visits, clock=self.clock, page=self.page)
        runner = Runner(tasks, worker, at_once=self.random.randint(1, 5), lease=LEASE)
        self.workers.append(owner)
        self._go(owner, runner.run(Stop(), 1.0))

    def _start_flusher(self) -> None:
        """It is never killed: that is tried elsewhere."""
        tools = tools_of(self.store, self.broker, self.overlay, self.clock, pick=self.random.randrange, one_file=True)
        flusher = Flusher(tools, FlushPolicy(0.3, 100, 10**6), topic="memory", lease=LEASE)
        self._go("flusher", flusher.run(Stop(), 1.0))

    def _go(self, owner: str, running: Coroutine[object, object, None]) -> None:
        self.loop.start(owner, running).add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.mistakes.append(task.exception())  # type: ignore[arg-type] # it is there
