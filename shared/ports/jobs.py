"""The ports of jobs: one keeps their state, the other hands out their tasks.

As with the other ports, all methods raise `TransientError` when the outcome is unknown or a later try may succeed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from shared.model.jobs import Done, Job, JobState, Task
from shared.model.times import StoreMillis, WallMillis


class Jobs(Protocol):
    """Keeps jobs, the results of their tasks, and their progress."""

    async def create(self, job: Job) -> tuple[JobState, bool]:
        """Keep the job, with one open task, unless its id exists. Returns the job of that id and whether it is new.
        Raises `ShareError` if too many jobs of its owner run (`job_shares`), and `ShareError` or `StorageFullError` if
        there is no room for an export.
        """
        ...

    async def get(self, job: str) -> JobState | None:
        """The job, or None if it does not exist. Numbers may lag a little while it runs, but an `open` of 0 is true."""
        ...

    async def latest(self, owner: str, limit: int) -> Sequence[JobState]:
        """Up to `limit` jobs of this owner, or without an owner if that is empty; those that began last come first."""
        ...

    async def record(self, done: Done) -> Done | None:
        """Keep the result of a task and add it to the job's progress, in one step. If the task has a result already,
        nothing changes. Returns the result that is kept, or None if the job does not exist. Raises `RefusedError` if
        there is no room for the chunk.
        """
        ...

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        """The results that are kept of the tasks that begin at these names, by name. Chunks may be left out."""
        ...

    async def end(self, job: str, state: str, when: WallMillis, why: str = "") -> None:
        """Set the state of a job that runs. Nothing changes if it has ended before."""
        ...

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """A page of the job's recorded tasks, in order: where each begins, and its chunk.

        The page starts behind `after`, or with the first task if `after` is empty. An empty page means that there are
        no more.
        """
        ...

    async def discard(self, job: str, when: WallMillis, why: str, limit: int) -> int:
        """Delete up to `limit` results of the job's tasks, and give their room back. Returns how many were deleted; 0
        means that none is left. The job stays. It is marked as failed first, even if it was done.
        """
        ...

    async def sweep(self, now: StoreMillis, limit: int) -> int:
        """Delete up to `limit` tasks of jobs that expired before `now`, and jobs without tasks. Returns how many
        rows were deleted; fewer than `limit` does not mean that none is left. A job is marked as failed before its
        first task is deleted, since its results are incomplete from then on.
        """
        ...


class Lease(NamedTuple):
    """A task that is handed out."""

    token: str
    """Names the lease. A later lease of the same task has another token."""
    task: Task


class Tasks(Protocol):
    """Hands out tasks: each at least once, in no promised order, to one holder at a time. Clients can't add any."""

    async def publish(self, tasks: Sequence[Task]) -> None:
        """Return when all are as durable as this queue is. After an error any of them may have been published."""
        ...

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        """Lease tasks, waiting up to `wait` seconds for the first. Returns none if none came, or a little early. A task
        that was given back, or whose lease ended, is handed out again.
        """
        ...

    async def extend(self, tokens: Sequence[str]) -> None:
        """Restart these leases at their full length. Leases that were lost stay lost without an error."""
        ...

    async def ack(self, tokens: Sequence[str]) -> None:
        """Forget these tasks. A task whose lease was lost is handed out again."""
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now. The tasks are handed out again at once."""
        ...
