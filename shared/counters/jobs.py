"""Starts and stops jobs, and reads what they have written. A start keeps the job, then publishes its first task; both
are safe to repeat.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import orjson

from shared.counters.series import check_span
from shared.counters.setter import Compactor
from shared.model.buckets import Millis, Rules, StoreMillis
from shared.model.errors import CountersinkError, InexactError
from shared.model.jobs import (
    ADD,
    COMPACT,
    DELETED,
    DONE,
    EXACT,
    EXPORT,
    FAILED,
    RUNNING,
    STOPPED,
    TELL_BEFORE,
    Job,
    JobState,
    Span,
    Task,
    lifetime_of_job,
)
from shared.model.receipts import counter_of_change, keys_of_changes, read_note
from shared.model.words import ANY_NAME
from shared.ports.overlay import Overlay
from shared.ports.store import Commits, Jobs, StoreClock, Tasks
from shared.runtime.clock import Clock
from shared.runtime.ids import mint

AT_ONCE: Final = 100
"""Results of an export that are deleted in one step."""


@dataclass(eq=False)
class JobStarter:
    """Starts and stops jobs. A process that is killed during a start may leave a job without a task; starting the job
    again repairs that.
    """

    jobs: Jobs
    tasks: Tasks
    overlay: Overlay
    compactor: Compactor
    clock: Clock
    store: StoreClock
    receipts_live: Millis
    rules: Rules = ()

    @property
    def sees_pending(self) -> bool:
        """Whether jobs visit counters whose increments are all still pending, in whichever process."""
        return self.overlay.shared

    async def start(
        self, kind: str, prefix: str, number: int = 0, *, span: Span | None = None, id_: str | None = None
    ) -> tuple[JobState, bool]:
        """Start a job. Returns the job of that id, which may be a different one (`Job.asks`), and whether it is new.

        If the job still runs, all of it is visited again, since tasks may have been lost. If it has ended, nothing
        happens. Raises `InexactError` if it needs exact readings and there are none, `NotAloneError` if compaction is
        not allowed, and `SpanError` if no counts by time are kept that a new job asks for.
        """
        there = await self.jobs.get(id_) if id_ is not None else None
        if there is not None and there.state != RUNNING:
            return there, False
        if span is not None and there is None:
            check_span(self.rules, prefix, span, int(self.clock.now() * 1000))
        if kind == COMPACT:
            self.compactor.check()
        needs = kind in EXACT or (kind == ADD and self.overlay.shared)
        if needs and not (await self.overlay.view((ANY_NAME,)))[ANY_NAME].exact:
            raise InexactError(
                f"a job can {kind} only while counters can be read exactly, which is not possible now: `countersink"
                " doctor` says why. With Pub/Sub, COUNTERSINK_OVERLAY must be a redis://… that all processes reach"
            )
        expires = StoreMillis(await self.store.now() + lifetime_of_job(kind, self.receipts_live))
        job = Job(id_ or mint(), kind, prefix, number, int(self.clock.now() * 1000), expires, span)
        standing, new = await self.jobs.create(job)
        if standing.state == RUNNING and standing.job.asks(kind, prefix, number, span):
            await self.tasks.publish([Task(job.id, again=not new)])
        return standing, new

    async def stop(self, id_: str) -> JobState | None:
        """Mark a running job as failed and return it as it is then. Tasks that have begun are still finished. The
        result of an export is deleted, even if the export is done. What a job took away until then can still be read.
        """
        now = int(self.clock.now() * 1000)
        standing = await self.jobs.get(id_)
        if standing is not None and standing.job.kind == EXPORT:
            while await self.jobs.discard(id_, now, DELETED, AT_ONCE):
                pass
        else:
            await self.jobs.end(id_, FAILED, now, STOPPED)
        return await self.jobs.get(id_)


# Reads what a job has written: the lines of an export, or the value that each counter had before the job changed it.
#
# The value before is in the receipt of the change, which its commit writes. So the result has a line for each change
# that was committed, and there is one for each counter, whatever process was killed.


CHUNKS: Final = 4
"""Chunks of an export in one page. A chunk has at most 1,000 counters."""
RECEIPTS: Final = 1_000


class NoResultError(CountersinkError):
    """The job has no result that can be read, or not yet, or no longer."""


class JobResults:
    def __init__(self, jobs: Jobs, store: Commits) -> None:
        self._jobs = jobs
        self._store = store

    async def page(self, job: str, after: str) -> tuple[bytes, str]:
        """Lines of JSON in the order of the names, and what to pass as `after` for the next page; empty after the last.

        Raises `NoResultError` if there is no such result.
        """
        standing = await self._found(job)
        _check(standing)
        if standing.job.kind == EXPORT:
            chunks = await self._jobs.chunks(job, after, CHUNKS)
            _check(await self._found(job))  # somebody may be deleting it
            return b"".join([chunk for _, chunk in chunks]), chunks[-1][0] if len(chunks) == CHUNKS else ""
        first = keys_of_changes(job)
        found = await self._store.receipts_from(first, after and first + after, RECEIPTS)
        if await self._store.now() > standing.job.until():
            raise NoResultError("the result of this job has expired")
        lines = []
        for receipt in found:
            counter, change = counter_of_change(receipt.key), read_note(receipt.note).change
            if counter is not None and change is not None:
                # By hand: a total may be larger than the integers that orjson writes.
                lines.append(b'{"name":%b,"before":%d}\n' % (orjson.dumps(counter), change[0]))
        return b"".join(lines), found[-1].key.removeprefix(first) if len(found) == RECEIPTS else ""

    async def pages(self, job: str) -> AsyncIterator[bytes]:
        lines, after = await self.page(job, "")
        yield lines
        while after:
            lines, after = await self.page(job, after)
            yield lines

    async def _found(self, job: str) -> JobState:
        if (standing := await self._jobs.get(job)) is None:
            raise NoResultError("the job is forgotten")
        return standing


def _check(standing: JobState) -> None:
    """A job that failed has changed some counters, and tells what they were."""
    job, state = standing.job, standing.state
    if (job.kind == EXPORT and state == DONE) or (job.kind in TELL_BEFORE and state != RUNNING):
        return
    *kinds, last = EXPORT, *TELL_BEFORE
    raise NoResultError(
        f"this job has no result: it is of kind '{job.kind}' and {state}. Only {', '.join(kinds)} and {last}"
        " have one, once they have ended; an export that failed has none"
    )
