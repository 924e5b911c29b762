"""The interface of a job kind: a function that handles one page of counters, and its result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from shared.model.jobs import Job
from shared.ports.store import Store
from shared.runtime.supervise import all_of

AT_ONCE: Final = 16
"""Counters of a page that are handled at the same time, where each has a commit of its own."""
T = TypeVar("T")


class PageOutcome(NamedTuple):
    """The result of one page."""

    visited: int
    """Counters that exist. Leftovers of deleted counters do not count."""
    changed: int = 0
    """Counters that this job changed, in this visit or an earlier one of the same page."""
    failed: Sequence[tuple[str, str]] = ()
    """Counters that could not be changed, and why."""
    chunk: bytes = b""


Visit = Callable[[Job, Sequence[str]], Awaitable[PageOutcome]]
"""Changes each counter once for each job, however often it is called. After a `TransientError` some may have been
changed: call it again.
"""


async def existing(store: Store, names: Sequence[str]) -> Mapping[str, int]:
    """The names that are counters now, with their numbers of shards.

    A deleted counter is listed until its leftovers are removed, which also removes its mark. So the marks are read
    first.
    """
    deleted = await store.deleted_among(names)
    there = await store.shards(names)
    if not (doubtful := [name for name in there if name in deleted]):
        return there
    async with store.snapshot() as snapshot:
        totals, _ = await snapshot.read(doubtful, ())
    return {name: number for name, number in there.items() if name not in deleted or totals[name].value}


async def one_by_one(names: Iterable[str], visit: Callable[[str], Awaitable[T]]) -> Sequence[T]:
    """Visit all names, some at the same time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> T:
        async with slots:
            return await visit(name)

    return await all_of(map(one, names))
