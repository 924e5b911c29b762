"""What each kind of job does to a page of counters: add, reset, delete, compact, export. Each change has a
receipt.
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeVar

import orjson

from shared.counters.reader import Reader
from shared.counters.series import MOST_READ_AT_ONCE, SeriesReader, written
from shared.counters.setter import COMPACT_FOR, ChangeRequest, Compactor, Setter
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    ContendedError,
    CrowdedError,
    InexactError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
    TransientError,
    amount,
)
from shared.model.jobs import DELETE, EXPIRE, Job, Span
from shared.model.receipts import Tally, notes_of_commit
from shared.model.words import MARKED, Bounds, Commit, Receipt, add_to, pages
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime import metrics
from shared.runtime.retry import all_of

# The interface of a job kind: a function that handles one page of counters, and its result.


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


# Adds a number to each counter of a page. Each addition has a receipt of the job in the same commit.


IN_COMMIT: Final = 200
"""Counters in a commit. Each needs a receipt and a shard, and some stores accept 500 entities in a commit."""
Shards = Mapping[str, int]
"""Numbers of shards, by counter."""


@dataclass(eq=False)
class Adding:
    """Safe to repeat: a receipt can be inserted only once, so a second visit of a page adds nothing twice."""

    store: Store
    reader: Reader
    overlay: Overlay
    exact: bool
    """Whether readings can be exact."""
    new_counter: int = 1
    """The number of shards of one that is only pending."""
    pick: Callable[[int], int] = random.randrange

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        there = await existing(self.store, self.reader, names, exact=self.exact)
        failed: list[tuple[str, str]] = []
        for part in map(dict, pages(there.items(), IN_COMMIT)):
            failed += await self._add(job, part)
        return PageOutcome(len(there), len(there) - len(failed), tuple(failed))

    async def _add(self, job: Job, left: Shards) -> Sequence[tuple[str, str]]:
        """Add to all of `left`; returns the counters that the store refuses, and why."""
        full: dict[str, frozenset[int]] = {}
        while left:
            commit = await self._commit(job, left, full)
            try:
                time = await self._apply(job, commit)
            except AlreadyAppliedError as error:
                left = await self._without_done(job, left, error)
            except ShardFullError as error:
                for name, shard in error.shards:
                    full[name] = full.get(name, frozenset()) | {shard}
            except ShrunkError as error:
                left = {**left, **await self.store.shards([*error.counters])}
            except RefusedError as error:
                if len(left) == 1:
                    return [(name, str(error)) for name in left]
                halves = map(dict, pages(left.items(), -(-len(left) // 2)))
                return [one for half in halves for one in await self._add(job, half)]
            else:
                await self.overlay.changed(commit.changes, time, commit.receipts[0].key)
                break
        return ()

    async def _apply(self, job: Job, commit: Commit) -> Instant:
        """`LateError`: it is too late for the whole job."""
        try:
            return await self.store.apply(commit)
        except ChangedError as error:
            raise TransientError(str(error)) from error
        except LateError as error:
            if error.reached > job.until():
                raise
            raise TransientError("this process was suspended during an addition") from error

    async def _without_done(self, job: Job, left: Shards, error: AlreadyAppliedError) -> Shards:
        """The counters whose addition is not done. The receipts must be read: an error does not mean that all exist."""
        keys = {name: job.receipt_of(name) for name in left}
        time, found = await self.store.receipts(keys.values())
        if not found:
            raise TransientError("a receipt that existed before is missing") from error
        await self.overlay.changed([name for name in left if keys[name] in found], time)
        return {name: shards for name, shards in left.items() if keys[name] not in found}

    async def _commit(self, job: Job, left: Shards, full: Mapping[str, frozenset[int]]) -> Commit:
        adds = [
            add_to(name, job.number, shards, new=self.new_counter, full=full.get(name, frozenset()), pick=self.pick)
            for name, shards in left.items()
        ]
        expires = job.receipts_expire()
        said = notes_of_commit(("",) * len(left), secrets.token_hex(6), Tally(), dict.fromkeys(left, job.number))
        receipts = [Receipt(job.receipt_of(name), expires, note=note) for name, note in zip(left, said, strict=True)]
        until = min(job.until(), StoreMillis(await self.store.now() + MARKED))
        bounds = Bounds(until, epoch=await self.overlay.mark(receipts[0].key, left))
        return Commit(tuple(receipts), tuple(adds), bounds=bounds, changes=tuple(left))


# Resets or deletes each counter of a page, exactly as a set does; or deletes those that were not changed for long. Each
# change has a receipt of the job.


class Resetting:
    """Sets counters to 0. A visit that finds the receipt changes nothing: increments since then are kept."""

    def __init__(self, setter: Setter) -> None:
        self._setter = setter

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        kind = DELETE if job.kind == EXPIRE else job.kind
        wish = ChangeRequest(kind, expires=job.receipts_expire(), until=job.until(), unused_since=job.unused_since())

        if job.kind == EXPIRE:
            names = await self._setter.unused(names, wish)

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


# Reduces the shards of each counter of a page. Each reduction has a receipt of the job.


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
        receipts = {name: Receipt(job.receipt_of(name), expires) for name in there}
        before = (await self._store.receipts([receipt.key for receipt in receipts.values()])).found

        async def compact(name: str) -> tuple[bool, str | None]:
            """Whether this job reduced it; if it could not, why."""
            done = receipts[name].key in before
            if there[name] <= job.number:
                return done, None
            try:
                number = await self._compactor.compact(name, job.number, receipts[name])
            except (CrowdedError, RefusedError) as error:
                return False, str(error)
            except ContendedError:
                if not await self._hot(name, job.number, there[name]):
                    raise
                return False, "it is written to all the time, on all its shards"
            if number > job.number:
                raise ContendedError(f"{name!r} has {amount(number, 'shard')} now, and must have {job.number}")
            if not done:
                metrics.COMPACTIONS.labels("job").inc()
            return True, None

        found = await one_by_one(there, compact)
        failed = [(name, why) for name, (_, why) in zip(there, found, strict=True) if why is not None]
        return PageOutcome(len(there), sum(done for done, _ in found), failed)

    async def _hot(self, name: str, first: int, end: int) -> bool:
        """Whether the counter is written all the time. If not, the store may have been busy, which passes."""
        ages = await self._store.ages([(name, shard) for shard in range(first, end)])
        return min(ages.values(), default=inf) < COMPACT_FOR


# Exports each counter of a page: a line of JSON with its name and its value, exact at one instant of the visit; or
# its counts by time, if the job asks for them.


MOST_IN_CHUNK: Final = 900_000
"""Bytes of a chunk, which fits into an entity (1 MiB). One line with all the points that a reading may have is less."""


class Exporting:
    """Safe to repeat: of two results for a page the first is kept."""

    def __init__(self, reader: Reader, series: SeriesReader) -> None:
        self._reader = reader
        self._series = series

    async def __call__(self, job: Job, names: Sequence[str]) -> PageOutcome:
        if job.span is not None:
            return await self._by_time(job, job.span, names)
        readings = await self._reader.read(names, 0)
        if not all(reading.exact for reading in readings):
            raise InexactError("these counters can't be read exactly now, so they are not exported yet")
        # By hand: a total may be larger than the integers that orjson writes.
        lines = [b'{"name":%b,"value":%d}\n' % (orjson.dumps(r.name), r.value) for r in readings if r.exists]
        return PageOutcome(len(lines), chunk=b"".join(lines))

    async def _by_time(self, job: Job, span: Span, names: Sequence[str]) -> PageOutcome:
        """Takes as many names from the beginning as fit into a chunk, and at least one.

        It exports only what was kept since it began, and each line says since when: a rule that is new must not hold up
        the job.
        """
        if not self._series.keeps_under(job.prefix, span.by):
            raise RefusedError(
                f"this flusher keeps no counts by {span.by} there: all processes need the same COUNTERSINK_WINDOWS"
            )
        lines: list[bytes] = []
        size = 0
        # A new end for each page would make a series longer than those before it.
        end = job.created + 1 if span.end is None else span.end
        for begin in range(0, len(names), MOST_READ_AT_ONCE):
            some = names[begin : begin + MOST_READ_AT_ONCE]
            for place, line in enumerate(await all_of([self._line(name, span, end) for name in some]), begin):
                if size and size + len(line) > MOST_IN_CHUNK:
                    return PageOutcome(len(lines), chunk=b"".join(lines), left=len(names) - place)
                if line:
                    lines.append(line)
                    size += len(line)
        return PageOutcome(len(lines), chunk=b"".join(lines))

    async def _line(self, name: str, span: Span, end: int) -> bytes:
        """Empty if the counter does not exist, or has no such counts."""
        if not self._series.keeps(name, span.by):
            return b""
        asked = self._series.range(name, span.by, span.begin, end)
        series = await self._series.read(asked, only_whole=True)
        if not series.known:
            raise InexactError("these counts by time can't be read exactly now, so they are not exported yet")
        return written(series, total=True) + b"\n" if series.exists else b""
