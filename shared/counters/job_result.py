"""Reads what a job has written: the lines of an export, or the value that each counter had before the job changed it.

The value before is in the receipt of the change, which its commit writes. So the result has a line for each change that
was committed, and there is one for each counter, whatever process was killed.
"""

from collections.abc import AsyncIterator
from typing import Final

import orjson

from shared.model.errors import CountersinkError
from shared.model.jobs import DONE, EXPORT, RUNNING, TELL_BEFORE, JobState
from shared.model.receipts import counter_of_change, keys_of_changes, read_note
from shared.ports.store import Commits, Jobs

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
    raise NoResultError(
        f"the job is of kind '{job.kind}' and {state}: only an export that is done can be read, and what a job of kind"
        f" {' or '.join(map(repr, TELL_BEFORE))} has taken away, once it has ended"
    )
