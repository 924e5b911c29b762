"""Jobs, which visit every counter under a prefix: what each kind does to a page of counters, and who takes the tasks.

A task is a page of a range of names. A `Runner` pulls it, and its `Worker` visits the page, records the result, and
publishes tasks for the rest of the range. Each change has a receipt.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, TypeVar

import orjson

from shared.counters.reader import AllNames, Reader
from shared.counters.series import MOST_READ_AT_ONCE, SeriesReader, written
from shared.counters.setter import COMPACT_FOR, ChangeRequest, Compactor, Setter
from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import (
    BROKEN,
    AlreadyAppliedError,
    ChangedError,
    ContendedError,
    CrowdedError,
    InexactError,
    LateError,
    NewerError,
    NotAloneError,
    RefusedError,
    ShardFullError,
    ShrunkError,
    TransientError,
    UnreadableError,
    amount,
    said_of_bug,
)
from shared.model.jobs import (
    COMPACT,
    DELETE,
    DONE,
    EXPIRE,
    EXPORT,
    FAILED,
    KINDS,
    MOST_EXAMPLES,
    RUNNING,
    Done,
    Job,
    Lease,
    Progress,
    Span,
    Task,
    divided,
)
from shared.model.ranges import split
from shared.model.receipts import Tally, notes_of_commit
from shared.model.words import MARKED, Bounds, Commit, Lately, Receipt, add_to, pages
from shared.ports.overlay import Overlay
from shared.ports.store import Jobs, Store, Tasks
from shared.runtime import metrics
from shared.runtime.clock import Clock
from shared.runtime.retry import Backoff, Stop, all_of, forever

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
    first. Names that may not exist are read as a client reads them. With `exact`, such a reading raises `InexactError`
    if it can't be exact now.
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


IN_COMMIT: Final = 200
"""Counters in a commit. Each needs a receipt and a shard, and some stores accept 500 entities in a commit."""
Shards = Mapping[str, int]
"""Numbers of shards, by counter."""


@dataclass(eq=False)
class Adding:
    """Adds a number to each counter. Safe to repeat: each addition has a receipt of the job in the same commit, and a
    receipt can be inserted only once.
    """

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


class Resetting:
    """Resets or deletes each counter, exactly as a set does, or deletes those that were not changed for long. A visit
    that finds the receipt changes nothing: increments since then are kept.
    """

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


class Compacting:
    """Reduces the shards of each counter. Safe to repeat: a receipt says that a counter was reduced. If it has grown
    since, a second visit reduces it again, which does not change its total.
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


MOST_IN_CHUNK: Final = 900_000
"""Bytes of a chunk, which fits into an entity (1 MiB). One line with all the points that a reading may have is less."""


class Exporting:
    """Writes a line of JSON for each counter: its name and its value, exact at one instant of the visit, or its counts
    by time, if the job asks for them. Safe to repeat: of two results for a page the first is kept.
    """

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


# Takes tasks, and does them.


_log = logging.getLogger(__name__)

PAGE: Final = 1_000
"""Counters of a task. Their export fits into one entity (1 MiB) even with the longest names."""
PAGE_BY_TIME: Final = 100
"""Counters of a task that exports counts by time, each of which is read by itself."""
BELIEVED: Final = 10.0
"""Seconds for which a running job is not read again. Working a little after its end does no harm."""
TOO_LONG: Final = "it took longer than receipts live, so the rest can't be done exactly once"
STAYS: Final = "Changes that were made stay; a new job would make them again"
MOST_JOBS: Final = 1_000
_VISITED: Final = {kind: metrics.JOB_COUNTERS.labels(kind) for kind in KINDS}


@dataclass(eq=False)
class Worker:
    """Does tasks; several may run at the same time."""

    tasks: Tasks
    jobs: Jobs
    store: Store
    names: AllNames
    visits: Mapping[str, Visit]
    """The function for each kind of job."""
    clock: Clock
    page: int = PAGE
    _running: Lately[str, tuple[Job, float]] = field(default_factory=lambda: Lately(MOST_JOBS), init=False)

    async def work(self, task: Task) -> None:
        """Do the task. When this returns, the task can be acknowledged.

        Raises `TransientError` if it must be repeated, `NewerError` if it needs a newer process, one of `BROKEN` if
        this process must end. Any other error is a bug: the job fails, as each process that takes the task would meet
        it again.
        """
        try:
            await self._work(task)
        except (TransientError, NewerError, *BROKEN):
            raise
        except Exception as error:
            _log.exception("a task of job %s hit an unexpected error", task.job)
            where = f"the page behind {task.range.after!r} met {said_of_bug(error)}"
            await self._fail(task.job, f"{where}. {STAYS}")

    async def _work(self, task: Task) -> None:
        job = await self._job(task.job)
        if job is None or not await self._in_time(job):
            return
        done = (await self.jobs.recorded(job.id, [task.range.after])).get(task.range.after)
        if done is None:
            try:
                done = await self.jobs.record(await self._visit(job, task))
            except LateError:
                await self._fail(job.id, TOO_LONG)
                return
            except (NotAloneError, RefusedError) as error:
                where = f"the page behind {task.range.after!r} failed"
                await self._fail(job.id, f"{where}: {error}" + (f". {STAYS}" if job.kind != EXPORT else ""))
                return
            if done is None:
                return  # the job was swept
            metrics.JOB_TASKS.inc()
            # The record may be another process's, and tasks below it may have been lost since.
            left: Sequence[Task] = [child._replace(again=task.again) for child in done.children]
        else:
            left = await self._left(task, done)
        if left:
            await self.tasks.publish(left)
        if not done.children:
            await self._finish(job)

    async def _job(self, job: str) -> Job | None:
        """The job, if it is running."""
        now = self.clock.monotonic()
        known, until = self._running.get(job, (None, now))
        if now < until:
            return known
        self._running.pop(job, None)
        standing = await self.jobs.get(job)
        if standing is None or standing.state != RUNNING:
            return None
        self._running[job] = (standing.job, now + BELIEVED)
        return standing.job

    async def _in_time(self, job: Job) -> bool:
        """Whether its receipts still exist. If not, the job fails: a repeated visit could not be recognised."""
        if await self.store.now() <= job.until():
            return True
        await self._fail(job.id, TOO_LONG)
        return False

    async def _fail(self, job: str, why: str) -> None:
        _log.error("job %s has failed: %s", job, why)
        await self.jobs.end(job, FAILED, int(self.clock.now() * 1000), why)
        self._running.pop(job, None)

    async def _visit(self, job: Job, task: Task) -> Done:
        visit = self.visits.get(job.kind)
        if visit is None:
            raise NewerError(f"this process does not know jobs of kind {job.kind}: run newer flushers")
        range_ = task.range
        size = self.page if job.span is None else min(self.page, PAGE_BY_TIME)
        exact = job.kind != COMPACT  # which has nothing to do where everything is pending
        page = await self.names.page(job.prefix, range_.after, size, range_.until, exact=exact)
        outcome = await visit(job, page) if page else PageOutcome(0)
        _VISITED[job.kind].inc(outcome.visited)
        done = page[: len(page) - outcome.left]
        parts = split(job.prefix, range_, done) if len(page) >= size or outcome.left else []
        children, share = divided(task, parts)
        progress = Progress(
            tasks=1,
            visited=outcome.visited,
            changed=outcome.changed,
            failed=len(outcome.failed),
            depth=range_.depth,
            share=share,
            examples=tuple(outcome.failed[:MOST_EXAMPLES]),
        )
        return Done(task, progress, children, outcome.chunk)

    async def _left(self, task: Task, done: Done) -> Sequence[Task]:
        """The recorded children that may have to be published: the process that recorded them may have died first.

        The range is never split again: the recorded children are the valid ones. Children that are done are left out,
        unless the job was asked for once more and all of it is checked.
        """
        if task.again:
            return [child._replace(again=True) for child in done.children]
        there = await self.jobs.recorded(task.job, [child.range.after for child in done.children])
        return [child for child in done.children if child.range.after not in there]

    async def _finish(self, job: Job) -> None:
        """End the job if this was its last task. If this process dies first, the task is redelivered."""
        standing = await self.jobs.get(job.id)
        if standing is not None and standing.state == RUNNING and not standing.open:
            await self.jobs.end(job.id, DONE, int(self.clock.now() * 1000))
            self._running.pop(job.id, None)


PULL_WAIT: Final = 0.2
GIVE_BACK: Final = 1.0
"""Seconds at the end to give tasks back. If the broker is away, their leases run out."""
TRIES: Final = 10
"""Attempts at a task, with growing pauses. Then it is given back: another process may be able to do it."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to pull while pulling fails: the tasks' subscription may not exist yet."""


@dataclass(eq=False)
class Runner:
    """Repeats each task until it is done, extends its lease meanwhile, and gives it back if it keeps failing."""

    tasks: Tasks
    worker: Worker
    at_once: int
    lease: float
    backoff: Callable[[], Backoff] = Backoff
    """The pauses between attempts at a task."""
    _working: dict[asyncio.Task[None], Lease] = field(default_factory=dict, init=False)
    _pulling: bool = field(default=False, init=False)

    async def run(self, stop: Stop, drain_timeout: float) -> None:
        """Work until `stop`. Then finish the tasks in work, for `drain_timeout` seconds, and give the rest back."""
        try:
            async with asyncio.TaskGroup() as group:
                puller = group.create_task(self._pull(stop, group), name="pull tasks")
                extender = group.create_task(forever(self.extend_once, self.lease / 3), name="extend tasks")
                await stop.wait()
                if self._pulling:  # otherwise tasks that it is just being handed could not be given back
                    await asyncio.wait([puller], timeout=GIVE_BACK)
                puller.cancel()
                if self._working:
                    await asyncio.wait([*self._working], timeout=drain_timeout)
                for one in (extender, *self._working):
                    one.cancel()
        finally:
            if tokens := [lease.token for lease in self._working.values()]:
                with contextlib.suppress(TransientError, TimeoutError):  # then the leases run out
                    async with asyncio.timeout(GIVE_BACK):
                        await self.tasks.give_back(tokens)

    async def extend_once(self) -> None:
        if self._working:
            await self.tasks.extend([lease.token for lease in self._working.values()])

    async def _pull(self, stop: Stop, group: asyncio.TaskGroup) -> None:
        patience = Backoff(most=LONGEST_PAUSE)
        while not stop.is_set():
            if len(self._working) >= self.at_once:
                await asyncio.wait([*self._working], return_when=asyncio.FIRST_COMPLETED)
                continue
            self._pulling = True
            try:
                leases = await self.tasks.pull(self.at_once - len(self._working), PULL_WAIT)
            except TransientError as error:
                _log.warning("pulling tasks of jobs failed and is retried: %s", error)
                self._pulling = False  # a drain need not wait for the next attempt
                await patience.wait()
                continue
            self._pulling = False
            patience.reset()
            for lease in leases:
                one = group.create_task(self._work(lease), name=f"task {lease.token}")
                self._working[one] = lease

    async def _work(self, lease: Lease) -> None:
        """Do one task, then acknowledge it or give it back.

        A cancelled task stays in `_working`, so that `run` gives it back. A task that only newer processes know is kept
        until its lease ends: given back, it would return at once and keep this process from other tasks.
        """
        try:
            ends = self.tasks.ack if await self._done(lease) else self.tasks.give_back
        except NewerError as error:
            metrics.NEWER.inc()
            _log.warning("a task of a job is left to newer processes: %s", error)
        else:
            with contextlib.suppress(
                TransientError
            ):  # then it is delivered again, and its record tells whether it is done
                await ends([lease.token])
        del self._working[asyncio.current_task()]  # type: ignore[arg-type] # it runs in a task

    async def _done(self, lease: Lease) -> bool:
        """Whether nothing is left to do of it."""
        try:
            task = lease.task
        except UnreadableError as error:  # otherwise it would come again for ever
            _log.error("a task of a job can't be read, and is dropped: %s", error)
            return True
        backoff = self.backoff()
        for left in reversed(range(TRIES)):
            try:
                await self.worker.work(task)
            except TransientError as error:
                _log.warning("a task of job %s failed and is retried: %s", task.job, error)
                if left:
                    await backoff.wait()
            else:
                return True
        return False
