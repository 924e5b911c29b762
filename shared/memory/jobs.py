"""Jobs and their tasks in memory: fakes for tests, and the queue of a process that runs a whole job alone."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.model.job_shares import check_running, owner_of
from shared.model.jobs import FAILED, FORGOTTEN, RUNNING, Done, Job, JobState, Task
from shared.model.times import StoreMillis, WallMillis
from shared.ports.jobs import Lease
from shared.runtime.clock import Clock


class MemoryJobs:
    """Keeps jobs. Their states are replaced and never changed, so callers may keep what they got."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobState] = {}
        self._done: dict[tuple[str, str], Done] = {}

    async def create(self, job: Job) -> tuple[JobState, bool]:
        new = job.id not in self._jobs
        if new and (owner := owner_of(job.id)):
            running = [id_ for id_, there in self._jobs.items() if there.state == RUNNING and owner_of(id_) == owner]
            check_running(owner, len(running))
        return self._jobs.setdefault(job.id, JobState(job, open=1)), new

    async def get(self, job: str) -> JobState | None:
        return self._jobs.get(job)

    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        theirs = [standing for id_, standing in self._jobs.items() if owner_of(id_) == owner]
        return sorted(theirs, key=lambda standing: standing.job.created, reverse=True)[:limit]

    async def record(self, done: Done) -> Done | None:
        task = done.task
        standing = self._jobs.get(task.job)
        if standing is None:
            return None
        key = (task.job, task.range.after)
        if key not in self._done:
            self._done[key] = done
            progress = standing.progress.plus(done.progress)
            self._jobs[task.job] = replace(standing, open=standing.open + done.opens, progress=progress)
        return self._done[key]

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        return {begin: self._done[job, begin] for begin in begins if (job, begin) in self._done}

    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        standing = self._jobs.get(job)
        if standing is not None and standing.state == RUNNING:
            self._jobs[job] = replace(standing, state=state, finished=when, why=why)

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        begins = sorted(begin for id_, begin in self._done if id_ == job and (begin > after or not after))
        return [(begin, self._done[job, begin].chunk) for begin in begins[:limit]]

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        standing = self._jobs.get(job)
        if standing is not None and standing.state != FAILED:
            self._jobs[job] = replace(standing, state=FAILED, finished=when, why=why)
        going = [key for key in self._done if key[0] == job][:limit]
        for key in going:
            del self._done[key]
        return len(going)

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        expired = {id_ for id_, standing in self._jobs.items() if standing.job.expires < now}
        for id_ in expired:
            self._jobs[id_] = replace(self._jobs[id_], state=FAILED, why=FORGOTTEN)
        going = [key for key in self._done if key[0] in expired][:limit]
        for key in going:
            del self._done[key]
        empty = expired.difference(id_ for id_, _ in self._done)
        for id_ in empty:
            del self._jobs[id_]
        return len(going) + len(empty)


@dataclass
class _LeasedTask:
    task: Task
    until: float = 0.0
    lease: int = 0


class MemoryTasks:
    """Hands out the newest task first, so that few wait at a time. Tasks that were given back come last."""

    def __init__(self, clock: Clock, lease: float = 60.0) -> None:
        self._clock = clock
        self._lease = lease
        self._held: dict[int, _LeasedTask] = {}
        self._last = 0
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    async def publish(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._last += 1
            self._held[self._last] = _LeasedTask(task)
        self._arrived.set()

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        if not self._free() and wait > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._arrived.wait()
            except TimeoutError:
                return ()
        leases = []
        for number in self._free()[:limit]:
            held = self._held[number]
            held.lease += 1
            held.until = self._clock.monotonic() + self._lease
            leases.append(Lease(f"{number}.{held.lease}", held.task))
        return leases

    async def extend(self, tokens: Sequence[str]) -> None:
        for held in map(self._leased, tokens):
            if held:
                held.until = self._clock.monotonic() + self._lease

    async def ack(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if self._leased(token):
                del self._held[int(token.partition(".")[0])]

    async def give_back(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if held := self._leased(token):
                held.until = 0.0
                number = int(token.partition(".")[0])
                self._held = {number: self._held.pop(number)} | self._held
        self._arrived.set()

    def _free(self) -> list[int]:
        now = self._clock.monotonic()
        return [number for number, held in reversed(self._held.items()) if held.until <= now]

    def _leased(self, token: str) -> _LeasedTask | None:
        number, _, lease = token.partition(".")
        held = self._held.get(int(number))
        return held if held and held.lease == int(lease) and held.until > 0 else None
