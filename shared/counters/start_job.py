"""Starts and stops jobs. A start keeps the job, then publishes its first task; both are safe to repeat."""

from dataclasses import dataclass
from typing import Final

from shared.counters.compaction import Compactor
from shared.counters.series import check_span
from shared.model.buckets import Millis, Rules, StoreMillis
from shared.model.errors import InexactError
from shared.model.jobs import (
    ADD,
    COMPACT,
    DELETED,
    EXACT,
    EXPORT,
    FAILED,
    RUNNING,
    STOPPED,
    Job,
    JobState,
    Span,
    Task,
    lifetime_of_job,
)
from shared.model.words import ANY_NAME
from shared.ports.overlay import Overlay
from shared.ports.store import Jobs, StoreClock, Tasks
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
