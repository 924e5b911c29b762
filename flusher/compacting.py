"""Brings each counter of a page down to fewer shards, under a receipt of the job."""

from collections.abc import Sequence

from flusher.visits import Outcome, existing, one_by_one
from shared import metrics
from shared.clock import Clock
from shared.compaction import Compactor, Mark
from shared.errors import ContendedError, CrowdedError, NotAloneError, RefusedError
from shared.jobs import Job
from shared.ports import Store


class Compacting:
    """A receipt says that a counter had more before. One that grows again is brought down again if its page is visited
    again, which changes no total.
    """

    def __init__(self, store: Store, compactor: Compactor, clock: Clock, receipts_live: int) -> None:
        """`receipts_live` in milliseconds."""
        self._store = store
        self._compactor = compactor
        self._clock = clock
        self._receipts_live = receipts_live

    async def __call__(self, job: Job, names: Sequence[str]) -> Outcome:
        there = await existing(self._store, names)
        expires = job.receipts_expire(int(self._clock.now() * 1000), self._receipts_live)
        marks = {name: Mark(job.receipt_of(name), expires) for name in there}
        before = (await self._store.receipts([mark.key for mark in marks.values()])).found

        async def compact(name: str) -> tuple[bool, str | None]:
            """Whether it has fewer by this job, and why it keeps what it has."""
            done = marks[name].key in before
            if there[name] <= job.number:
                return done, None
            try:
                number = await self._compactor.compact(name, job.number, marks[name])
            except (CrowdedError, RefusedError, NotAloneError) as error:
                return done, str(error)
            except ContendedError:
                return done, "all its shards are written to all the time"
            if number > job.number:
                raise ContendedError(f"{name!r} has {number} shards by now, and has to have {job.number}")
            if not done:
                metrics.COMPACTIONS.labels("job").inc()
            return True, None

        found = await one_by_one(there, compact)
        failed = [(name, why) for name, (_, why) in zip(there, found, strict=True) if why is not None]
        return Outcome(len(there), sum(done for done, _ in found), failed)
