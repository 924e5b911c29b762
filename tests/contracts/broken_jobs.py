"""Keepers of jobs, and queues of tasks, with one mistake each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from shared.memory.tasks import MemoryTasks
from shared.model.buckets import StoreMillis, WallMillis
from shared.model.jobs import RUNNING, Done, Job, JobState, Task, check_running, owner_of
from shared.ports.store import Lease
from tests.world.memory.jobs import MemoryJobs


class ForgetsTheFirstJob(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        new = job.id not in self._jobs
        self._jobs[job.id] = JobState(job, open=1)
        return self._jobs[job.id], new


class ListsJobsOfOthers(MemoryJobs):
    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        theirs = [standing for id_, standing in self._jobs.items() if id_.startswith(owner)]
        return sorted(theirs, key=lambda standing: standing.job.created, reverse=True)[:limit]


class ListsTheOldestFirst(MemoryJobs):
    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        return [*reversed(await super().latest(owner, 1_000))][:limit]


class AlwaysNew(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        return (await super().create(job))[0], True


class SharesNothing(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        new = job.id not in self._jobs
        return self._jobs.setdefault(job.id, JobState(job, open=1)), new


class CountsOtherOwners(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        running = [there for there in self._jobs.values() if there.state == RUNNING]
        if job.id not in self._jobs:
            check_running(owner_of(job.id), len(running))
        return await super().create(job)


class CountsJobsThatEnded(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        owner = owner_of(job.id)
        if job.id not in self._jobs:
            check_running(owner, sum(owner_of(id_) == owner for id_ in self._jobs))
        return await super().create(job)


class RefusesWhatIsThere(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        owner = owner_of(job.id)
        running = [there for id_, there in self._jobs.items() if there.state == RUNNING and owner_of(id_) == owner]
        check_running(owner, len(running))
        return await super().create(job)


class BeginsWithNoTask(MemoryJobs):
    async def create(self, job: Job) -> tuple[JobState, bool]:
        new = job.id not in self._jobs
        return self._jobs.setdefault(job.id, JobState(job, open=0)), new


class CountsTwice(MemoryJobs):
    """Progress and record are two steps."""

    async def record(self, done: Done) -> Done | None:
        before = self._done.get((done.task.job, done.task.range.after))
        kept = await super().record(done)
        if before is not None:
            standing = self._jobs[done.task.job]
            progress = standing.progress.plus(done.progress)
            self._jobs[done.task.job] = replace(standing, open=standing.open + done.opens, progress=progress)
        return kept


class KeepsTheLastSplit(MemoryJobs):
    async def record(self, done: Done) -> Done | None:
        kept = await super().record(done)
        if kept is not None:
            self._done[done.task.job, done.task.range.after] = done
            return done
        return None


class SaysItsOwnSplit(MemoryJobs):
    """Kept is the first, but the second is told that it was."""

    async def record(self, done: Done) -> Done | None:
        return done if await super().record(done) is not None else None


class RecordsForNobody(MemoryJobs):
    async def record(self, done: Done) -> Done | None:
        return await super().record(done) or done


class ClosesNothing(MemoryJobs):
    async def record(self, done: Done) -> Done | None:
        new = (done.task.job, done.task.range.after) not in self._done
        kept = await super().record(done)
        if kept is not None and new:
            standing = self._jobs[done.task.job]
            self._jobs[done.task.job] = replace(standing, open=standing.open + 1)
        return kept


class ForgetsExamples(MemoryJobs):
    async def record(self, done: Done) -> Done | None:
        return await super().record(replace(done, progress=done.progress._replace(examples=())))


class LastDepth(MemoryJobs):
    async def get(self, job: str) -> JobState | None:
        there = await super().get(job)
        return replace(there, progress=there.progress._replace(depth=1)) if there else None


class MixesJobs(MemoryJobs):
    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        return {begin: done for (_, begin), done in self._done.items() if begin in begins}


class EndsAgain(MemoryJobs):
    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        if job in self._jobs:
            self._jobs[job] = replace(self._jobs[job], state=state, finished=when, why=why)


class EndsWhatIsNotThere(MemoryJobs):
    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        self._jobs.setdefault(job, JobState(Job(job, "add", ""), 0))
        await super().end(job, state, when, why)


class ChunksAsTheyCame(MemoryJobs):
    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        return [(begin, done.chunk) for (id_, begin), done in self._done.items() if id_ == job and begin >= after][
            :limit
        ]


class FirstChunkAgain(MemoryJobs):
    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        begins = sorted(begin for id_, begin in self._done if id_ == job and begin >= after)
        return [(begin, self._done[job, begin].chunk) for begin in begins[:limit]]


class InTheOrderOfOthers(MemoryJobs):
    """UTF-16."""

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        begins = sorted((one for id_, one in self._done if id_ == job), key=lambda one: one.encode("utf-16-be"))
        behind = begins if not after else begins[begins.index(after) + 1 :]
        return [(begin, self._done[job, begin].chunk) for begin in behind[:limit]]


class CutsChunks(MemoryJobs):
    async def record(self, done: Done) -> Done | None:
        return await super().record(replace(done, chunk=done.chunk[:65_536]))


class SweepsAll(MemoryJobs):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        return await super().sweep(StoreMillis(2**60), limit)


class SweepsSilently(MemoryJobs):
    """Half of an export is told as all of it."""

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        before = dict(self._jobs)
        count = await super().sweep(now, limit)
        self._jobs = {id_: before[id_] for id_ in self._jobs}
        return count


class SweepsJobsAlone(MemoryJobs):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        gone = [id_ for id_, standing in self._jobs.items() if standing.job.expires < now]
        for id_ in gone:
            del self._jobs[id_]
        return len(gone)


class SweepsTasksAlone(MemoryJobs):
    async def sweep(self, now: StoreMillis, limit: int) -> int:
        jobs = dict(self._jobs)
        count = await super().sweep(now, limit)
        gone = len(jobs) - len(self._jobs)
        self._jobs = jobs
        return count - gone


class DiscardsSilently(MemoryJobs):
    """What is left of an export is told as all of it."""

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        before = self._jobs.get(job)
        count = await super().discard(job, when, why, limit)
        if before is not None:
            self._jobs[job] = before
        return count


class DiscardsEverything(MemoryJobs):
    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        count = await super().discard(job, when, why, limit)
        self._done.clear()
        return count


class DiscardsNothing(MemoryJobs):
    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        await super().discard(job, when, why, 0)
        return 0


class HandsOutTwice(MemoryTasks):
    def _free(self) -> list[int]:
        return [*self._held]


class HandsOutOnce(MemoryTasks):
    """What a killed worker held is lost."""

    def _free(self) -> list[int]:
        return [number for number, held in self._held.items() if not held.lease]


class ForgetsAtOnce(MemoryTasks):
    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        leases = await super().pull(limit, wait)
        await self.ack([lease.token for lease in leases])
        return leases


class AcksNothing(MemoryTasks):
    async def ack(self, tokens: Sequence[str]) -> None:
        pass


class AcksLostLeases(MemoryTasks):
    async def ack(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._held.pop(int(token.partition(".")[0]), None)


class GivesBackLostLeases(MemoryTasks):
    async def give_back(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._held[int(token.partition(".")[0])].until = 0.0


class KeepsWhatIsGivenBack(MemoryTasks):
    async def give_back(self, tokens: Sequence[str]) -> None:
        pass


class HandsOutAll(MemoryTasks):
    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        return await super().pull(1_000, wait)


class SaysTasksAgain(MemoryTasks):
    async def publish(self, tasks: Sequence[Task]) -> None:
        await super().publish([task._replace(again=False) for task in tasks])
