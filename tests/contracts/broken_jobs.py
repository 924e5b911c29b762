"""Keepers of jobs, and queues of tasks, with one mistake each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from shared.model.buckets import StoreMillis
from shared.model.jobs import RUNNING, Done, Job, JobState, check_running, owner_of
from tests.contracts.broken import Fault, after, calls, gives, nothing
from tests.world.memory.jobs import MemoryJobs
from tests.world.memory.tasks import LeasedTasks

Right = Callable[..., Any]


def makes(state: Callable[[MemoryJobs, Job], JobState]) -> Fault:
    """The keeper makes jobs as it likes, without a look at how many there are."""

    async def create(jobs: MemoryJobs, right: Right, job: Job) -> Any:
        new = job.id not in jobs._jobs
        return state(jobs, job), new

    return calls(create=create)


def _the_new_one(jobs: MemoryJobs, job: Job) -> JobState:
    jobs._jobs[job.id] = JobState(job, open=1)
    return jobs._jobs[job.id]


def counts(there: Callable[[MemoryJobs, Job], int], *, again: bool = False) -> Fault:
    """The keeper counts other jobs before it makes one, or `again` before it finds one."""

    async def create(jobs: MemoryJobs, right: Right, job: Job) -> Any:
        if again or job.id not in jobs._jobs:
            check_running(owner_of(job.id), there(jobs, job))
        return await right(job)

    return calls(create=create)


def _running(jobs: MemoryJobs, owner: str | None = None) -> int:
    return sum(state.state == RUNNING and owner in {None, owner_of(id_)} for id_, state in jobs._jobs.items())


async def _count_twice(jobs: MemoryJobs, right: Right, done: Done) -> Any:
    """Progress and record are two steps."""
    before = jobs._done.get((done.task.job, done.task.range.after))
    kept = await right(done)
    if before is not None:
        state = jobs._jobs[done.task.job]
        progress = state.progress.plus(done.progress)
        jobs._jobs[done.task.job] = replace(state, open=state.open + done.opens, progress=progress)
    return kept


async def _keep_the_last_split(jobs: MemoryJobs, right: Right, done: Done) -> Any:
    if await right(done) is None:
        return None
    jobs._done[done.task.job, done.task.range.after] = done
    return done


async def _close_nothing(jobs: MemoryJobs, right: Right, done: Done) -> Any:
    new = (done.task.job, done.task.range.after) not in jobs._done
    kept = await right(done)
    if kept is not None and new:
        state = jobs._jobs[done.task.job]
        jobs._jobs[done.task.job] = replace(state, open=state.open + 1)
    return kept


async def _end_again(jobs: MemoryJobs, right: Right, job: str, *how: Any) -> None:
    if job in jobs._jobs:
        jobs._jobs[job] = replace(jobs._jobs[job], **dict(zip(("state", "finished", "why"), how, strict=True)))


async def _end_what_is_not_there(jobs: MemoryJobs, right: Right, job: str, *how: Any) -> None:
    jobs._jobs.setdefault(job, JobState(Job(job, "add", ""), 0))
    await right(job, *how)


def _chunks(jobs: MemoryJobs, job: str, begins: Sequence[str], limit: int) -> Sequence[tuple[str, bytes]]:
    return [(begin, jobs._done[job, begin].chunk) for begin in begins[:limit]]


def _begins(jobs: MemoryJobs, job: str, first: str = "") -> list[str]:
    return [begin for id_, begin in jobs._done if id_ == job and begin >= first]


def _chunks_in_utf16(jobs: MemoryJobs, _: object, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
    begins = sorted(_begins(jobs, job), key=lambda begin: begin.encode("utf-16-be"))
    return _chunks(jobs, job, begins if not after else begins[begins.index(after) + 1 :], limit)


async def _sweep_silently(jobs: MemoryJobs, right: Right, now: StoreMillis, limit: int) -> Any:
    """Half of an export is told as all of it."""
    before = dict(jobs._jobs)
    count = await right(now, limit)
    jobs._jobs = {id_: before[id_] for id_ in jobs._jobs}
    return count


async def _sweep_jobs_alone(jobs: MemoryJobs, right: Right, now: StoreMillis, limit: int) -> Any:
    gone = [id_ for id_, state in jobs._jobs.items() if state.job.expires < now]
    for id_ in gone:
        del jobs._jobs[id_]
    return len(gone)


async def _sweep_tasks_alone(jobs: MemoryJobs, right: Right, now: StoreMillis, limit: int) -> Any:
    before = dict(jobs._jobs)
    count = await right(now, limit)
    gone = len(before) - len(jobs._jobs)
    jobs._jobs = before
    return count - gone


async def _discard_silently(jobs: MemoryJobs, right: Right, job: str, *how: Any) -> Any:
    """What is left of an export is told as all of it."""
    before = jobs._jobs.get(job)
    count = await right(job, *how)
    if before is not None:
        jobs._jobs[job] = before
    return count


async def _discard_nothing(jobs: MemoryJobs, right: Right, job: str, *how: Any) -> Any:
    await right(job, *how[:-1], 0)
    return 0


JOBS: Final[dict[str, Fault]] = {
    "forgets the first job": makes(_the_new_one),
    "lists jobs of others": gives(
        "latest",
        lambda jobs, _, owner, limit: sorted(
            (state for id_, state in jobs._jobs.items() if id_.startswith(owner)),
            key=lambda state: state.job.created,
            reverse=True,
        )[:limit],
    ),
    "lists the oldest first": calls(
        latest=lambda _, right, owner, limit: _reversed(right(owner, 1_000), limit),
    ),
    "always new": gives("create", lambda _, created, job: (created[0], True)),
    "shares nothing": makes(lambda jobs, job: jobs._jobs.setdefault(job.id, JobState(job, open=1))),
    "counts other owners": counts(lambda jobs, _: _running(jobs)),
    "counts jobs that ended": counts(lambda jobs, job: sum(owner_of(id_) == owner_of(job.id) for id_ in jobs._jobs)),
    "refuses what is there": counts(lambda jobs, job: _running(jobs, owner_of(job.id)), again=True),
    "begins with no task": makes(lambda jobs, job: jobs._jobs.setdefault(job.id, JobState(job, open=0))),
    "counts twice": calls(record=_count_twice),
    "keeps the last split": calls(record=_keep_the_last_split),
    "says its own split": gives("record", lambda _, kept, done: kept and done),
    "records for nobody": gives("record", lambda _, kept, done: kept or done),
    "closes nothing": calls(record=_close_nothing),
    "forgets examples": calls(
        record=lambda _, right, done: right(replace(done, progress=done.progress._replace(examples=())))
    ),
    "last depth": gives(
        "get", lambda _, state, job: state and replace(state, progress=state.progress._replace(depth=1))
    ),
    "mixes jobs": gives(
        "recorded",
        lambda jobs, _, job, begins: {begin: done for (_, begin), done in jobs._done.items() if begin in begins},
    ),
    "ends again": calls(end=_end_again),
    "ends what is not there": calls(end=_end_what_is_not_there),
    "chunks as they came": gives(
        "chunks", lambda jobs, _, job, after, limit: _chunks(jobs, job, _begins(jobs, job, after), limit)
    ),
    "first chunk again": gives(
        "chunks", lambda jobs, _, job, after, limit: _chunks(jobs, job, sorted(_begins(jobs, job, after)), limit)
    ),
    "in the order of others": gives("chunks", _chunks_in_utf16),
    "cuts chunks": calls(record=lambda _, right, done: right(replace(done, chunk=done.chunk[:65_536]))),
    "sweeps all": calls(sweep=lambda _, right, now, limit: right(StoreMillis(2**60), limit)),
    "sweeps silently": calls(sweep=_sweep_silently),
    "sweeps jobs alone": calls(sweep=_sweep_jobs_alone),
    "sweeps tasks alone": calls(sweep=_sweep_tasks_alone),
    "discards silently": calls(discard=_discard_silently),
    "discards everything": after("discard", "_done", lambda *_: {}),
    "discards nothing": calls(discard=_discard_nothing),
}


async def _reversed(listed: Any, limit: int) -> Sequence[JobState]:
    return [*reversed(await listed)][:limit]


async def _forget_at_once(tasks: LeasedTasks, right: Right, limit: int, wait: float) -> Any:
    leases = await right(limit, wait)
    await tasks.ack([lease.token for lease in leases])
    return leases


async def _ack_lost_leases(tasks: LeasedTasks, right: Right, tokens: Sequence[str]) -> None:
    for token in tokens:
        tasks._held.pop(int(token.partition(".")[0]), None)


async def _give_back_lost_leases(tasks: LeasedTasks, right: Right, tokens: Sequence[str]) -> None:
    for token in tokens:
        tasks._held[int(token.partition(".")[0])].until = 0.0


TASKS: Final[dict[str, Fault]] = {
    "hands out twice": calls(_free=lambda tasks, _: [*tasks._held]),
    "hands out once, so that what a killed worker held is lost": calls(
        _free=lambda tasks, _: [number for number, held in tasks._held.items() if not held.lease]
    ),
    "forgets at once": calls(pull=_forget_at_once),
    "acks nothing": calls(ack=nothing),
    "acks lost leases": calls(ack=_ack_lost_leases),
    "gives back lost leases": calls(give_back=_give_back_lost_leases),
    "keeps what is given back": calls(give_back=nothing),
    "hands out all": calls(pull=lambda _, right, limit, wait: right(1_000, wait)),
    "says tasks again": calls(publish=lambda _, right, tasks: right([one._replace(again=False) for one in tasks])),
}
