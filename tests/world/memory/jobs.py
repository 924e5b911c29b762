"""Jobs in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from shared.model.buckets import StoreMillis, WallMillis
from shared.model.jobs import FAILED, FORGOTTEN, RUNNING, Done, Job, JobState, check_running, owner_of


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
