"""Pulls tasks of jobs and does them: visits a page of a range, records the result, publishes tasks for the rest."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flusher.jobs.kinds import PageOutcome, Visit
from shared.counters.reader import AllNames
from shared.model.errors import (
    BROKEN,
    LateError,
    NewerError,
    NotAloneError,
    RefusedError,
    TransientError,
    UnreadableError,
    said_of_bug,
)
from shared.model.jobs import (
    COMPACT,
    DONE,
    EXPORT,
    FAILED,
    KINDS,
    MOST_EXAMPLES,
    RUNNING,
    Done,
    Job,
    Lease,
    Progress,
    Task,
    divided,
)
from shared.model.ranges import split
from shared.model.words import Lately
from shared.ports.store import Jobs, Store, Tasks
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff, Stop, forever

_log = logging.getLogger(__name__)

PAGE: Final = 1_000
"""Counters of a task. Their export fits into one entity (1 MiB) even with the longest names."""
PAGE_BY_TIME: Final = 100
"""Counters of a task that exports counts by time, each of which is read by itself."""
BELIEVED: Final = 10.0
"""Seconds for which a running job is not read again. Working a little after its end does no harm."""
TOO_LONG: Final = "it took longer than receipts live, so the rest can't be done exactly once"
STAYS: Final = "Changes that were made stay; a new job would make them again"
MOST_JOBS: Final = 1_000
_VISITED: Final = {kind: metrics.JOB_COUNTERS.labels(kind) for kind in KINDS}


@dataclass(eq=False)
class Worker:
    """Does tasks; several may run at the same time."""

    tasks: Tasks
    jobs: Jobs
    store: Store
    names: AllNames
    visits: Mapping[str, Visit]
    """The function for each kind of job."""
    clock: Clock
    page: int = PAGE
    _running: Lately[str, tuple[Job, float]] = field(default_factory=lambda: Lately(MOST_JOBS), init=False)

    async def work(self, task: Task) -> None:
        """Do the task. When this returns, the task can be acknowledged.

        Raises `TransientError` if it must be repeated, `NewerError` if it needs a newer process, one of `BROKEN` if
        this process must end. Any other error is a bug: the job fails, as each process that takes the task would meet
        it again.
        """
        try:
            await self._work(task)
        except (TransientError, NewerError, *BROKEN):
            raise
        except Exception as error:
            _log.exception("a task of job %s hit an unexpected error", task.job)
            where = f"the page behind {task.range.after!r} met {said_of_bug(error)}"
            await self._fail(task.job, f"{where}. {STAYS}")

    async def _work(self, task: Task) -> None:
        job = await self._job(task.job)
        if job is None or not await self._in_time(job):
            return
        done = (await self.jobs.recorded(job.id, [task.range.after])).get(task.range.after)
        if done is None:
            try:
                done = await self.jobs.record(await self._visit(job, task))
            except LateError:
                await self._fail(job.id, TOO_LONG)
                return
            except (NotAloneError, RefusedError) as error:
                where = f"the page behind {task.range.after!r} failed"
                await self._fail(job.id, f"{where}: {error}" + (f". {STAYS}" if job.kind != EXPORT else ""))
                return
            if done is None:
                return  # the job was swept
            metrics.JOB_TASKS.inc()
            # The record may be another process's, and tasks below it may have been lost since.
            left: Sequence[Task] = [child._replace(again=task.again) for child in done.children]
        else:
            left = await self._left(task, done)
        if left:
            await self.tasks.publish(left)
        if not done.children:
            await self._finish(job)

    async def _job(self, job: str) -> Job | None:
        """The job, if it is running."""
        now = self.clock.monotonic()
        known, until = self._running.get(job, (None, now))
        if now < until:
            return known
        self._running.pop(job, None)
        standing = await self.jobs.get(job)
        if standing is None or standing.state != RUNNING:
            return None
        self._running[job] = (standing.job, now + BELIEVED)
        return standing.job

    async def _in_time(self, job: Job) -> bool:
        """Whether its receipts still exist. If not, the job fails: a repeated visit could not be recognised."""
        if await self.store.now() <= job.until():
            return True
        await self._fail(job.id, TOO_LONG)
        return False

    async def _fail(self, job: str, why: str) -> None:
        _log.error("job %s has failed: %s", job, why)
        await self.jobs.end(job, FAILED, int(self.clock.now() * 1000), why)
        self._running.pop(job, None)

    async def _visit(self, job: Job, task: Task) -> Done:
        visit = self.visits.get(job.kind)
        if visit is None:
            raise NewerError(f"this process does not know jobs of kind {job.kind}: run newer flushers")
        range_ = task.range
        size = self.page if job.span is None else min(self.page, PAGE_BY_TIME)
        exact = job.kind != COMPACT  # which has nothing to do where everything is pending
        page = await self.names.page(job.prefix, range_.after, size, range_.until, exact=exact)
        outcome = await visit(job, page) if page else PageOutcome(0)
        _VISITED[job.kind].inc(outcome.visited)
        done = page[: len(page) - outcome.left]
        parts = split(job.prefix, range_, done) if len(page) >= size or outcome.left else []
        children, share = divided(task, parts)
        progress = Progress(
            tasks=1,
            visited=outcome.visited,
            changed=outcome.changed,
            failed=len(outcome.failed),
            depth=range_.depth,
            share=share,
            examples=tuple(outcome.failed[:MOST_EXAMPLES]),
        )
        return Done(task, progress, children, outcome.chunk)

    async def _left(self, task: Task, done: Done) -> Sequence[Task]:
        """The recorded children that may have to be published: the process that recorded them may have died first.

        The range is never split again: the recorded children are the valid ones. Children that are done are left out,
        unless the job was asked for once more and all of it is checked.
        """
        if task.again:
            return [child._replace(again=True) for child in done.children]
        there = await self.jobs.recorded(task.job, [child.range.after for child in done.children])
        return [child for child in done.children if child.range.after not in there]

    async def _finish(self, job: Job) -> None:
        """End the job if this was its last task. If this process dies first, the task is redelivered."""
        standing = await self.jobs.get(job.id)
        if standing is not None and standing.state == RUNNING and not standing.open:
            await self.jobs.end(job.id, DONE, int(self.clock.now() * 1000))
            self._running.pop(job.id, None)


# Pulls tasks of jobs, has them done while it extends their leases, and gives the rest back at the end.


PULL_WAIT: Final = 0.2
GIVE_BACK: Final = 1.0
"""Seconds at the end to give tasks back. If the broker is away, their leases run out."""
TRIES: Final = 10
"""Attempts at a task, with growing pauses. Then it is given back: another process may be able to do it."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to pull while pulling fails: the tasks' subscription may not exist yet."""


@dataclass(eq=False)
class Runner:
    """Repeats each task until it is done, extends its lease meanwhile, and gives it back if it keeps failing."""

    tasks: Tasks
    worker: Worker
    at_once: int
    lease: float
    backoff: Callable[[], Backoff] = Backoff
    """The pauses between attempts at a task."""
    _working: dict[asyncio.Task[None], Lease] = field(default_factory=dict, init=False)
    _pulling: bool = field(default=False, init=False)

    async def run(self, stop: Stop, drain_timeout: float) -> None:
        """Work until `stop`. Then finish the tasks in work, for `drain_timeout` seconds, and give the rest back."""
        try:
            async with asyncio.TaskGroup() as group:
                puller = group.create_task(self._pull(stop, group), name="pull tasks")
                extender = group.create_task(forever(self.extend_once, self.lease / 3), name="extend tasks")
                await stop.wait()
                if self._pulling:  # otherwise tasks that it is just being handed could not be given back
                    await asyncio.wait([puller], timeout=GIVE_BACK)
                puller.cancel()
                if self._working:
                    await asyncio.wait([*self._working], timeout=drain_timeout)
                for one in (extender, *self._working):
                    one.cancel()
        finally:
            if tokens := [lease.token for lease in self._working.values()]:
                with contextlib.suppress(TransientError, TimeoutError):  # then the leases run out
                    async with asyncio.timeout(GIVE_BACK):
                        await self.tasks.give_back(tokens)

    async def extend_once(self) -> None:
        if self._working:
            await self.tasks.extend([lease.token for lease in self._working.values()])

    async def _pull(self, stop: Stop, group: asyncio.TaskGroup) -> None:
        patience = Backoff(most=LONGEST_PAUSE)
        while not stop.is_set():
            if len(self._working) >= self.at_once:
                await asyncio.wait([*self._working], return_when=asyncio.FIRST_COMPLETED)
                continue
            self._pulling = True
            try:
                leases = await self.tasks.pull(self.at_once - len(self._working), PULL_WAIT)
            except TransientError as error:
                _log.warning("pulling tasks of jobs failed and is retried: %s", error)
                self._pulling = False  # a drain need not wait for the next attempt
                await patience.wait()
                continue
            self._pulling = False
            patience.reset()
            for lease in leases:
                one = group.create_task(self._work(lease), name=f"task {lease.token}")
                self._working[one] = lease

    async def _work(self, lease: Lease) -> None:
        """Do one task, then acknowledge it or give it back.

        A cancelled task stays in `_working`, so that `run` gives it back. A task that only newer processes know is kept
        until its lease ends: given back, it would return at once and keep this process from other tasks.
        """
        try:
            ends = self.tasks.ack if await self._done(lease) else self.tasks.give_back
        except NewerError as error:
            metrics.NEWER.inc()
            _log.warning("a task of a job is left to newer processes: %s", error)
        else:
            with contextlib.suppress(
                TransientError
            ):  # then it is delivered again, and its record tells whether it is done
                await ends([lease.token])
        del self._working[asyncio.current_task()]  # type: ignore[arg-type] # it runs in a task

    async def _done(self, lease: Lease) -> bool:
        """Whether nothing is left to do of it."""
        try:
            task = lease.task
        except UnreadableError as error:  # otherwise it would come again for ever
            _log.error("a task of a job can't be read, and is dropped: %s", error)
            return True
        backoff = self.backoff()
        for left in reversed(range(TRIES)):
            try:
                await self.worker.work(task)
            except TransientError as error:
                _log.warning("a task of job %s failed and is retried: %s", task.job, error)
                if left:
                    await backoff.wait()
            else:
                return True
        return False
