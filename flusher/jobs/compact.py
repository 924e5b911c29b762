"""Reduces the shards of each counter of a page. Each reduction has a receipt of the job."""

from collections.abc import Sequence
from math import inf

from flusher.jobs.visit import PageOutcome, existing, one_by_one
from shared.counters.compaction import PATIENCE, Compactor, Stamp
from shared.counters.reader import Reader
from shared.model.errors import ContendedError, CrowdedError, RefusedError
from shared.model.jobs import Job
from shared.ports.store import Store
from shared.runtime import metrics


class Compacting:
    """Safe to repeat: a receipt says that a counter was reduced. If the counter has grown since, a second visit reduces
    it again, which does not change its total.
    """

    def __init__(self, store: Store, reader: Reader, compactor: Compactor) -> None:
        self._store = store
        self._reader = reader
        self._compactor = compactor

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        there = await existing(self._store, self._reader, names, exact=False)
        expires = job.receipts_expire()
        stamps = {name: Stamp(job.receipt_of(name), expires) for name in there}
        before = (await self._store.receipts([stamp.key for stamp in stamps.values()])).found

        async def compact(name: str) -> tuple[bool, str | None]:
            """Whether this job reduced it; if it could not, why."""
            done = stamps[name].key in before
            if there[name] <= job.number:
                return done, None
            try:
                number = await self._compactor.compact(name, job.number, stamps[name])
            except (CrowdedError, RefusedError) as error:
                return False, str(error)
            except ContendedError:
                if not await self._hot(name, job.number, there[name]):
                    raise
                return False, "it is written to all the time, on all its shards"
            if number > job.number:
                raise ContendedError(f"{name!r} has {number} shards now, and must have {job.number}")
            if not done:
                metrics.COMPACTIONS.labels("job").inc()
            return True, None

        found = await one_by_one(there, compact)
        failed = [(name, why) for name, (_, why) in zip(there, found, strict=True) if why is not None]
        return PageOutcome(len(there), sum(done for done, _ in found), failed)

    async def _hot(self, name: str, first: int, end: int) -> bool:
        """Whether the counter is written all the time. If not, the store may have been busy, which passes."""
        ages = await self._store.ages([(name, shard) for shard in range(first, end)])
        return min(ages.values(), default=inf) < PATIENCE
