"""Rows of a job that adds to 100,000 counters on the Firestore emulator: by 1, 4 and 16 tasks at once, each against the
visit page by page in the same run; and once more while the process is killed. Each counter must have all of it once.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import uuid4

from bench.emulators import FIRESTORE, PROJECT
from bench.figures import Figure, Plan, Row
from flusher.jobs import IN_COMMIT, PAGE, Adding
from flusher.service import make_runner
from shared.config.settings import Settings
from shared.counters.jobs import JobStarter
from shared.counters.reader import Reader
from shared.counters.setter import compactor_of
from shared.datastore.client import DatastoreClient
from shared.datastore.jobs import DatastoreJobs
from shared.datastore.keys import DatastorePlace
from shared.datastore.store import DatastoreStore
from shared.memory import MemoryTasks, ProcessOverlay
from shared.model.buckets import DAY, Millis, StoreMillis
from shared.model.jobs import ADD, DONE, RUNNING, Job, JobState, lifetime_of_job
from shared.model.receipts import lifetime
from shared.model.words import Commit, Receipt, ShardAdd
from shared.runtime.clock import SystemClock
from shared.runtime.ids import mint
from shared.runtime.retry import Stop
from tests.world.memory.broker import MemoryBroker
from tests.world.parts import parts_of

DELTA: Final = 10
KILLS: Final = 3
LIVE: Final = lifetime(Millis(7 * DAY), of_client=True)
_LOOK: Final = 0.05
_LOADERS: Final = 4


class _Space:
    """A namespace with so many counters, each of which is 1."""

    def __init__(self, host: str, counters: int) -> None:
        self.host = host
        self.namespace = f"jobs-{uuid4().hex}"
        self.clock = SystemClock()
        self._client = DatastoreClient(DatastorePlace(PROJECT, namespace=self.namespace), self.clock, host)
        self.store = DatastoreStore(self._client)
        self.jobs = DatastoreJobs(self._client)
        self.names = [f"account:{number:06}" for number in range(counters)]

    async def close(self) -> None:
        await self._client.close()

    async def load(self) -> None:
        async def some(first: int) -> None:
            for begin in range(first * IN_COMMIT, len(self.names), _LOADERS * IN_COMMIT):
                adds = [ShardAdd(name, 0, 1, 1) for name in self.names[begin : begin + IN_COMMIT]]
                await self.store.apply(Commit((Receipt(f"load-{begin}", StoreMillis(2**42)),), tuple(adds)))

        await asyncio.gather(*map(some, range(_LOADERS)))

    async def by_page(self) -> float:
        """One page after another; counters per second."""
        now = int(self.clock.now() * 1000)
        job = Job(mint(), ADD, "", DELTA, now, StoreMillis(now + lifetime_of_job(ADD, LIVE)))
        overlay = ProcessOverlay(self.clock)
        reader = Reader(self.store, overlay, self.clock, 0)
        visit, after, begun = Adding(self.store, reader, overlay, exact=False), "", time.monotonic()
        while page := await self.store.names("", after, PAGE):
            await visit(job, page)
            after = page[-1]
        return len(self.names) / (time.monotonic() - begun)

    async def by_job(self, at_once: int) -> tuple[float, JobState]:
        """Counters per second."""
        tasks, overlay = MemoryTasks(), ProcessOverlay(self.clock)
        settings = Settings()
        broker = MemoryBroker(self.clock)
        parts = parts_of(broker, self.store, self.clock, one_file=False, overlay=overlay, jobs=self.jobs, tasks=tasks)
        stop, begun = Stop(), time.monotonic()
        compactor = compactor_of(self.store, self.clock, settings)
        starter = JobStarter(self.jobs, tasks, overlay, compactor, self.clock, store=self.store, receipts_live=LIVE)
        standing, _ = await starter.start(ADD, "", DELTA)
        running = asyncio.create_task(make_runner(parts, settings, at_once=at_once).run(stop, 0))
        while standing.state == RUNNING:
            await asyncio.sleep(_LOOK)
            standing = await self.standing(standing.job.id)
        seconds = time.monotonic() - begun
        stop.set()
        await running
        return len(self.names) / seconds, standing

    async def standing(self, job: str) -> JobState:
        standing = await self.jobs.get(job)
        if standing is None:
            raise RuntimeError(f"job {job} does not exist")
        return standing

    async def killed(self, at_once: int, seconds: float) -> int:
        """As processes of their own, that are killed after so many seconds; how many were."""
        job = mint()
        command = [sys.executable, "-m", "countersink", "map", "--prefix", "", "--add", str(DELTA), "--job", job]
        environment = os.environ | {
            "DATASTORE_EMULATOR_HOST": self.host,
            "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",  # nobody asks there
            "COUNTERSINK_BROKER": f"pubsub://{PROJECT}/none?subscription=none",
            "COUNTERSINK_STORE": f"datastore://{PROJECT}?namespace={self.namespace}",
        }
        kills = 0
        while True:
            process = await asyncio.create_subprocess_exec(
                *command, "--concurrency", str(at_once), env=environment, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                async with asyncio.timeout(seconds if kills < KILLS else None):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
                kills += 1
                continue
            if code or (await self.standing(job)).state != DONE:
                raise RuntimeError(f"a process that does a job ended with {code}")
            return kills

    async def each_is(self, value: int) -> None:
        for begin in range(0, len(self.names), PAGE):
            some = self.names[begin : begin + PAGE]
            async with self.store.snapshot() as snapshot:
                totals, _ = await snapshot.read(some, ())
            wrong = {name: total.value for name, total in totals.items() if total.value != value}
            if wrong:
                raise RuntimeError(f"{len(wrong)} of {len(some)} counters are not {value}, as {[*wrong.items()][:3]}")


async def _measure(plan: Plan, row: Row, at_once: int) -> None:
    space = _Space(plan.emulators.host(FIRESTORE), plan.counters)
    try:
        await space.load()
        linear = await space.by_page()
        rate, standing = await space.by_job(at_once)
        kills = await space.killed(at_once, max(len(space.names) / rate / (KILLS + 1), 2.0))
        await space.each_is(1 + 3 * DELTA)
    finally:
        await space.close()
    row.ours, row.reference, row.ratio = Figure.of([rate]), Figure.of([linear]), Figure.of([rate / linear])
    progress = standing.progress
    pages = -(-plan.counters // PAGE)
    row.more |= {
        "counters": plan.counters, "page": PAGE, "tasks": progress.tasks, "depth": progress.depth, "kills": kills,
        "seconds": plan.counters / rate, "seconds_by_page": plan.counters / linear, "rounds_by_page": pages,
    }  # fmt: skip
    row.notes.append(
        f"{plan.counters / rate:.1f} s in {progress.depth} rounds of {progress.tasks} tasks, page by page"
        f" {plan.counters / linear:.1f} s in {pages} rounds; once more with {kills} kills; each counter has all of it"
    )


def _row(plan: Plan, at_once: int) -> Row:
    row = Row(f"map-{at_once}", f"+{DELTA} to {plan.counters:,} counters, {at_once} at once", "counters/s")
    asyncio.run(_measure(plan, row, at_once))
    return row


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {
    f"map-{number}": partial(_row, at_once=number) for number in (1, 4, 16)
}
