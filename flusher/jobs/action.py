"""What a job does to a page of counters, and what comes of it. Each kind of job is one of these."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from shared.model.jobs import Job
from shared.ports.store import Store

AT_ONCE: Final = 16
"""Counters of a page, where each has a commit of its own."""
T = TypeVar("T")


class PageOutcome(NamedTuple):
    """Of a page."""

    visited: int
    """Counters that are there; what is left of deleted ones is passed over."""
    changed: int = 0
    """By this job, now or the first time that this page was visited."""
    failed: Sequence[tuple[str, str]] = ()
    """Counters that it could not be done to, and why."""
    chunk: bytes = b""


Visit = Callable[[Job, Sequence[str]], Awaitable[PageOutcome]]
"""Does it to each of them once for each job, however often it is called. `TransientError`: it may have been done to
some; call it again.
"""


async def existing(store: Store, names: Sequence[str]) -> Mapping[str, int]:
    """Those of the names that are counters now, and how many shards they have. What is deleted is listed until it is
    removed, which takes its mark off: so the marks are looked at first.
    """
    deleted = await store.deleted_among(names)
    there = await store.shards(names)
    if not (doubtful := [name for name in there if name in deleted]):
        return there
    async with store.snapshot() as snapshot:
        totals, _ = await snapshot.read(doubtful, ())
    return {name: number for name, number in there.items() if name not in deleted or totals[name].value}


async def one_by_one(names: Iterable[str], visit: Callable[[str], Awaitable[T]]) -> Sequence[T]:
    """Some at once. All are awaited, also after one failed: what goes on behind the caller's back is not bounded."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> T:
        async with slots:
            return await visit(name)

    results = []
    for end in await asyncio.gather(*map(one, names), return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
        results.append(end)
    return results
