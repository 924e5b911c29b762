"""The interface of a job kind: a function that handles one page of counters, and its result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from shared.counters.reader import Reader
from shared.model.errors import InexactError
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
    left: int = 0
    """Names at the end of the page that were not visited, since the chunk is full."""


Visit = Callable[[Job, Sequence[str]], Awaitable[PageOutcome]]
"""Changes each counter once for each job, however often it is called. After a `TransientError` some may have been
changed: call it again.
"""


async def existing(store: Store, reader: Reader, names: Sequence[str], *, exact: bool) -> Mapping[str, int]:
    """The names that are counters now, with their numbers of shards: 0 where everything is still pending.

    A deleted counter is listed until its leftovers are removed, which also removes its mark. So the marks are read
    first. What is not surely there is read as a client would read it: with `exact`, `InexactError` if that can't be
    exact now.
    """
    deleted = await store.deleted_among(names)
    there = await store.shards(names)
    doubtful = [name for name in names if name not in there or name in deleted]
    if not doubtful:
        return there
    readings = {reading.name: reading for reading in await reader.read(doubtful, 0)}
    if exact and not all(reading.exact for reading in readings.values()):
        raise InexactError("can't find out exactly now which of these counters exist")
    return {
        name: readings[name].shards if name in readings else there[name]
        for name in names
        if name not in readings or readings[name].exists
    }


async def one_by_one(names: Iterable[str], visit: Callable[[str], Awaitable[T]]) -> Sequence[T]:
    """Visit all names, some at the same time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> T:
        async with slots:
            return await visit(name)

    return await all_of(map(one, names))
