"""The ports of jobs: where what is known of them is kept, and what hands out their tasks.

As with the other ports, all methods raise `TransientError` when the outcome is unknown or a later try may succeed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from shared.model.jobs import Done, Job, JobState, Task


class Jobs(Protocol):
    """Keeps jobs, what became of their tasks, and how far they are."""

    async def create(self, job: Job) -> tuple[JobState, bool]:
        """Keep it, with one open task, unless there is one of its id; the one that is there, and whether it is new."""
        ...

    async def get(self, job: str) -> JobState | None:
        """None if it is not there. Numbers may be a little behind while it runs, all but an `open` of 0."""
        ...

    async def record(self, done: Done) -> Done | None:
        """Keep it and have the job's progress grow by it, in one step, unless that task is kept already. What is kept:
        this, or the earlier one. None if the job is not there.
        """
        ...

    async def recorded(self, job: str, begins: Collection[str]) -> Mapping[str, Done]:
        """Those of the tasks that begin there which are kept, by where they begin. Chunks may be left out."""
        ...

    async def end(self, job: str, state: str, when: int, why: str = "") -> None:
        """It is so from now on, unless it has ended before."""
        ...

    async def chunks(self, job: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Of the tasks that begin behind `after`, or at the beginning if it is empty: the first `limit` of them, in
        order, where each begins and its chunk. None if no more are there.
        """
        ...

    async def sweep(self, now: int, limit: int) -> int:
        """Delete what is left of jobs that expired before `now` (ms), up to `limit` tasks; how many rows went. Fewer
        does not mean that none is left. A job has failed before the first of its tasks goes: what it says is not whole.
        """
        ...


class Lease(NamedTuple):
    """A task that is handed out."""

    token: str
    """Names the lease. A later one of the same task has another."""
    task: Task


class Tasks(Protocol):
    """Hands out tasks: at least once, in no promised order, to one holder at a time. Nobody else can put any in."""

    async def publish(self, tasks: Sequence[Task]) -> None:
        """Return when all are durable, as far as this queue is. After an error any of them may have been published."""
        ...

    async def pull(self, limit: int, wait: float) -> Sequence[Lease]:
        """At least one, waiting up to `wait` seconds; none if none came, or a little early. A lease that ran out, or
        was given back, is handed out again.
        """
        ...

    async def extend(self, tokens: Sequence[str]) -> None:
        """Have these leases begin anew. A lease that was lost stays lost; that is no error."""
        ...

    async def ack(self, tokens: Sequence[str]) -> None:
        """Done: forget these. A lease that was lost stays lost, and its task will come again."""
        ...

    async def give_back(self, tokens: Sequence[str]) -> None:
        """End these leases now: the tasks are handed out again at once."""
        ...
