"""How a job begins: it is kept, then its first task is published; both are safe to do again. And how it is stopped."""

from typing import Final

from shared.counters.compaction import Compactor
from shared.model.errors import InexactError
from shared.model.jobs import COMPACT, EXACT, FAILED, RUNNING, STOPPED, Job, JobState, Task, lifetime_of_job
from shared.ports.commits import StoreClock
from shared.ports.jobs import Jobs, Tasks
from shared.ports.overlay import Overlay
from shared.runtime.clock import Clock
from shared.runtime.ids import mint

_ANY: Final = "-"
"""A name: whether one counter could be read exactly is whether all could."""


class Starting:
    """Whoever is killed in between leaves a job without a task: asking for it again is what mends that."""

    def __init__(
        self,
        jobs: Jobs,
        tasks: Tasks,
        overlay: Overlay,
        compactor: Compactor,
        clock: Clock,
        *,
        store: StoreClock,
        receipts_live: int,
    ) -> None:
        """`receipts_live` in milliseconds."""
        self._jobs = jobs
        self._store = store
        self._tasks = tasks
        self._overlay = overlay
        self._compactor = compactor
        self._clock = clock
        self._receipts_live = receipts_live

    async def start(self, kind: str, prefix: str, number: int = 0, *, id_: str | None = None) -> tuple[JobState, bool]:
        """The job of that id as it is now, and whether it is new. It may be another job: see `Job.asks`.

        One that still runs is gone through once more, in case that tasks of it were lost. One that has ended needs
        nothing. `InexactError`: what would have to be read exactly can't be; `NotAloneError`: nothing is compacted.
        """
        if id_ is not None and (there := await self._jobs.get(id_)) is not None and there.state != RUNNING:
            return there, False
        if kind == COMPACT:
            self._compactor.check()
        if kind in EXACT and not (await self._overlay.view((_ANY,)))[_ANY].exact:
            raise InexactError(
                f"a job can {kind} only while counters can be read exactly, which they can't be now: with Pub/Sub it"
                " takes COUNTERSINK_OVERLAY=redis://…, and all processes must reach it"
            )
        expires = await self._store.now() + lifetime_of_job(kind, self._receipts_live)
        job = Job(id_ or mint(), kind, prefix, number, int(self._clock.now() * 1000), expires)
        standing, new = await self._jobs.create(job)
        if standing.state == RUNNING and standing.job.asks(kind, prefix, number):
            await self._tasks.publish([Task(job.id, again=not new)])
        return standing, new

    async def stop(self, id_: str) -> JobState | None:
        """The job of that id as it is then: it has failed, unless it had ended. Tasks that are in work are finished."""
        await self._jobs.end(id_, FAILED, int(self._clock.now() * 1000), STOPPED)
        return await self._jobs.get(id_)
