"""Resets or deletes each counter of a page, exactly as a set does. Each change has a receipt of the job."""

from collections.abc import Sequence

from flusher.jobs.visit import PageOutcome, one_by_one
from shared.counters.setter import ChangeRequest, Setter
from shared.model.errors import RefusedError
from shared.model.jobs import Job


class Resetting:
    """Sets counters to 0. A visit that finds the receipt changes nothing: increments since then are kept."""

    def __init__(self, setter: Setter) -> None:
        self._setter = setter

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        wish = ChangeRequest(job.kind, expires=job.receipts_expire(), until=job.until())

        async def reset(name: str) -> tuple[bool, str | None]:
            """Whether the counter exists; if it could not be set, why."""
            try:
                change = await self._setter.set_existing(name, wish, job.receipt_of(name))
            except RefusedError as error:
                return True, str(error)
            return change is not None, None

        found = await one_by_one(names, reset)
        failed = [(name, why) for name, (_, why) in zip(names, found, strict=True) if why is not None]
        visited = sum(there for there, _ in found)
        return PageOutcome(visited, visited - len(failed), failed)
