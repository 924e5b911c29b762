"""Workers that do one job on a network that loses and repeats, while they are killed, under one seed."""

import asyncio
import contextlib
import random
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from flusher.adding import Adding
from flusher.runner import Runner
from flusher.tasks import Worker
from shared import notes
from shared.job_ports import Lease
from shared.jobs import ADD, ALL, DONE, Done, Job, Standing, Task, lifetime_of_job
from shared.memory.jobs import MemoryJobs, MemoryTasks
from shared.memory.store import MemoryStore
from shared.receipts import DAY, lifetime
from shared.supervise import Stop
from shared.words import Commit, Receipt, ShardAdd, Tally
from tests.path.network import RemoteStore
from tests.simulation.loop import OWNER, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.system import LoopClock

LEASE = 2.0
LIVE = lifetime(7 * DAY, of_client=True)
LONGEST = 600.0
"""Virtual seconds in which a job is done."""
PREFIX = "p:"


class RemoteJobs:
    """Jobs as one process sees them."""

    def __init__(self, network: Network, owner: str, jobs: MemoryJobs) -> None:
        self._network, self._owner, self._jobs = network, owner, jobs

    async def create(self, job: Job) -> tuple[Standing, bool]:
        made: tuple[Standing, bool] = await self._network.call(self._owner, "create", lambda: self._jobs.create(job))
        return made

    async def get(self, job: str) -> Standing | None:
        found: Standing | None = await self._network.call(self._owner, "get", lambda: self._jobs.get(job))
        return found

    async def record(self, done: Done) -> Done | None:
        kept: Done | None = await self._network.call(self._owner, "record", lambda: self._jobs.record(done))
        return kept

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        found: Mapping[str, Done] = await self._network.call(
            self._owner, "recorded", lambda: self._jobs.recorded(job, begins)
        )
        return found

    async def end(self, job: str, state: str, when: int, why: str = "") -> None:
        await self._network.call(self._owner, "end", lambda: self._jobs.end(job, state, when, why))

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        return await self._jobs.chunks(job, after, limit)

    async def sweep(self, now: int, limit: int) -> int:
        return await self._jobs.sweep(now, limit)


class RemoteTasks:
    """The queue as one process sees it."""

    def __init__(self, network: Network, owner: str, tasks: MemoryTasks) -> None:
        self._network, self._owner, self._tasks = network, owner, tasks

    async def publish(self, tasks: Sequence[Task]) -> None:
        await self._network.call(self._owner, "publish", lambda: self._tasks.publish(tasks))

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        leases: Sequence[Lease] = await self._network.call(self._owner, "pull", lambda: self._tasks.pull(limit, 0))
        if not leases:
            await asyncio.sleep(wait)
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        await self._network.call(self._owner, "extend", lambda: self._tasks.extend(tokens))

    async def ack(self, tokens: Sequence[str]) -> None:
        await self._network.call(self._owner, "ack", lambda: self._tasks.ack(tokens))

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._network.call(self._owner, "give back", lambda: self._tasks.give_back(tokens))


class World:
    """One job, and what must be true of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.network = Network(self.random, loss=self.random.choice([0.0, 0.02, 0.1]))
        self.store = MemoryStore(self.clock)
        self.jobs = MemoryJobs()
        self.tasks = MemoryTasks(self.clock, LEASE)
        self.names = (f"process {number}" for number in count())
        self.workers: list[str] = []
        self.mistakes: list[BaseException] = []
        self.page = self.random.randint(2, 12)
        self.before: dict[str, int] = {}
        self.meanwhile: dict[str, int] = {}
        now = int(self.clock.now() * 1000)
        delta = self.random.choice([1, 10, -7])
        self.job = Job("j", ADD, PREFIX, delta, now, now + lifetime_of_job(LIVE))

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
        finally:
            for owner in {*self.loop.tasks.values()}:
                self.loop.kill(owner)
            with contextlib.suppress(BaseException):
                self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            asyncio.set_event_loop(None)

    async def _main(self) -> None:
        await self._count(self.random.randint(0, 120))
        self.before = await self.totals()
        for _ in range(self.random.randint(1, 3)):
            self._start()
        await self.jobs.create(self.job)
        await self.tasks.publish([Task(self.job.id)])
        faults = [self._kill, self._kill, self._freeze, self._ask_again, self._meet]
        for _ in range(self.random.randint(0, 25)):
            await asyncio.sleep(self.random.expovariate(8))
            await self.random.choice(faults)()
            self.check_mistakes()
        self.network.loss = 0.0
        self.network.stopped.clear()
        await self._settle()
        await self.check()
        await self.tasks.publish([Task(self.job.id, again=True)])
        await self._settle()
        await self.check()

    async def _settle(self) -> None:
        until = self.loop.time() + LONGEST
        while len(self.tasks) or (await self.standing()).state != DONE:
            self.check_mistakes()
            if self.loop.time() > until:
                raise AssertionError("the job is never done")
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)  # what was late has come

    async def standing(self) -> Standing:
        standing = await self.jobs.get(self.job.id)
        assert standing is not None
        return standing

    async def totals(self) -> dict[str, int]:
        names = await self.store.names("", "", 10_000)
        async with self.store.snapshot() as snapshot:
            totals, _ = await snapshot.read(names, ())
        return {name: total.value for name, total in totals.items()}

    async def check(self) -> None:
        """Each counter that was there has it once; others have it or not; and all says so."""
        standing = await self.standing()
        progress = standing.progress
        assert (standing.state, standing.open, progress.share, progress.failed) == (DONE, 0, ALL, 0)
        began = self.before | self.meanwhile
        added = {name: value - began[name] for name, value in (await self.totals()).items()}
        for name, more in added.items():
            if not name.startswith(PREFIX):
                assert not more, name
            elif name in self.before:
                assert more == self.job.delta, (name, more)
            else:
                assert more in {0, self.job.delta}, (name, more)
        # One that was made meanwhile may have been there for somebody who was killed, and not for who did his task.
        changed = [name for name, more in added.items() if more]
        old = [name for name in changed if name in self.before]
        assert len(old) <= progress.visited == progress.changed <= len(changed)
        said: dict[str, int] = {}
        async with self.store.books() as books:
            async for page in books.receipts():
                for kept in page:
                    for name, delta in notes.read(kept.receipt.note).sums.items():
                        said[name] = said.get(name, 0) + delta
        assert said == await self.totals()

    def check_mistakes(self) -> None:
        for mistake in self.mistakes:
            raise mistake

    async def _count(self, number: int) -> None:
        """So many counters, some of them of other prefixes."""
        for _ in range(number):
            name = f"{self.random.choice([PREFIX, PREFIX, 'q'])}{self.random.randint(0, 9_999):04}"
            if name in await self.totals():
                continue
            shards = self.random.choice([1, 1, 3])
            value = self.random.randint(1, 5)
            note = notes.written([""], "c", Tally(value), {name: value})[0]
            receipt = Receipt(f"of {name}", int(self.clock.now() * 1000) + LIVE, note=note)
            await self.store.apply(Commit((receipt,), (ShardAdd(name, self.random.randrange(shards), value, shards),)))

    async def _meet(self) -> None:
        """Others make counters meanwhile."""
        before = await self.totals()
        await self._count(self.random.randint(1, 5))
        for name, value in (await self.totals()).items():
            if name not in before:
                self.meanwhile[name] = value

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
        tasks = RemoteTasks(self.network, owner, self.tasks)
        jobs = RemoteJobs(self.network, owner, self.jobs)
        store = RemoteStore(self.network, owner, self.store)  # type: ignore[arg-type] # it calls no more than `call`
        visits = {ADD: Adding(store, self.clock, LIVE, pick=self.random.randrange)}
        worker = Worker(tasks, jobs, store, visits, clock=self.clock, receipts_live=LIVE, page=self.page)
        runner = Runner(tasks, worker, at_once=self.random.randint(1, 5), lease=LEASE)
        self.workers.append(owner)
        token = OWNER.set(owner)
        self.loop.create_task(runner.run(Stop(), 1.0)).add_done_callback(self._ended)
        OWNER.reset(token)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.mistakes.append(task.exception())  # type: ignore[arg-type] # it is there
