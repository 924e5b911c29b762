"""Copies one store into another: totals, counts by time, receipts that clients' retries may meet, marks and jobs.

Each step can be repeated, so a copy can be killed anywhere and run again, even while the origin keeps counting:

- A total is added as an import adds it, with a mark. A counter that holds something else than what was copied to it
  before is left alone: the copy would add to it what it has already, as on the way back into an old file.
- Counts by time are written to a shard of their own, in place of what the copy before wrote there.
- A receipt or job that exists is left as it is.
- The mark of an import is a sum, so it is added as a total is, with a mark of its own. Where both stores have imported
  from one source, the mark is what both have added.

At the end, all but receipts is read again on both sides, and compared.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

from countersink_server.move.importer import RETRY_FOR, Importer, ImportOptions, ImportOutcome
from shared.model.buckets import StoreMillis, TimeBucket, WallMillis
from shared.model.errors import AlreadyAppliedError, ChangedError, TransientError
from shared.model.jobs import RUNNING
from shared.model.moving import (
    Foreign,
    MovedCount,
    MovedJob,
    MovedReceipt,
    Origin,
    followed_until,
    marks_of,
    shard_of_copy,
)
from shared.model.words import DEAD, Commit, Guard, Mark, Receipt, Total, pages
from shared.runtime.retry import Backoff, insist, within
from shared.wiring.moving import End

PAGE: Final = 500
"""Counters that are compared at once."""
RECEIPTS: Final = 400
"""Receipts in a commit."""
COUNTS: Final = 2_000
"""Counts by time that are written at once."""
MARKS_AT_ONCE: Final = 200
"""Marks in a commit, which moves two for each."""
JOBS_AT_ONCE: Final = 100
"""Jobs that are looked for at once."""
AT_ONCE: Final = 20
"""Counters whose counts by time are read at once."""
T = TypeVar("T")


FOREIGN: Final = "not copied from here"
TOTALS: Final = "counters"
BY_TIME: Final = "counts_by_time"
IDS: Final = "receipts"
MARKS: Final = "marks"
JOBS: Final = "jobs"
WHAT: Final = {
    TOTALS: "counters",
    BY_TIME: "counts by time",
    IDS: "ids and other receipts",
    MARKS: "marks of imports",
    JOBS: "jobs",
}
"""What is copied, and how people call it."""


@dataclass(slots=True)
class CopyReport:
    """What a copy did, and what differs at the end."""

    origin: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WHAT, 0))
    """How many there are, of each of `WHAT`."""
    copied: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WHAT, 0))
    """How many of these were missing or different."""
    differences: list[tuple[str, str]] = field(default_factory=list)
    """Counters, and what differs."""

    @property
    def is_foreign(self) -> bool:
        """Whether some differ because the target holds something that was not copied."""
        return any(what.endswith(FOREIGN) for _, what in self.differences)


Progress = Callable[[str, int], None]
"""Told the name of the step, and how much of it is done."""
Step = Callable[[bool], Awaitable[tuple[int, int]]]
"""Returns how much there is in the origin, and how much of it was missing or different there. If told so, it writes
that.
"""


class Copier:
    """It is also the `Source` of the import that adds the totals: there, counters that hold something else in the
    target have a flaw, and an empty one is made.
    """

    def __init__(self, origin: Origin, target: End, options: ImportOptions, *, merge: bool, progress: Progress) -> None:
        """`merge`: counters there may hold something else."""
        self.name = origin.name
        self._origin = origin
        self._target = target
        self._store = target.store
        self._options = options
        self._merge = merge
        self._progress = progress
        self._shard = shard_of_copy(self.name)
        self._left: set[str] = set()
        """Counters that are left alone."""
        self._fresh: set[str] = set()
        """Counters that the target did not know, not even as deleted."""
        self._flaws: dict[str, str] = {}
        """Counters with counts by time that can't be copied, and jobs that can't be."""
        self.report = CopyReport()

    async def copy(self, prefix: str) -> None:
        """Copy what is missing; with `dry`, only count it."""
        if not self._options.dry:
            followed = await self._origin.followed()
            if followed:
                wall = int(self._target.clock.now() * 1_000)
                await self._insist(lambda: self._target.arrivals.follow(followed_until(followed, wall)))
        await self._totals(prefix)
        for what, step in self._steps(prefix).items():
            self.report.origin[what], self.report.copied[what] = await step(not self._options.dry)
        self.report.differences += self._flaws.items()

    async def compare(self, prefix: str) -> None:
        """Read all but receipts again, on both sides, and report what differs. A receipt that was inserted, or found,
        is there.
        """
        again = {what: await step(False) for what, step in self._steps(prefix).items() if what != IDS}
        async for one in self._unequal(prefix):
            self._differs(*one)
        for what, (_, number) in again.items():
            if number:
                self._differs("", f"{number} {WHAT[what]} differ")

    def _steps(self, prefix: str) -> Mapping[str, Step]:
        """What is copied besides totals."""
        origin = self._origin
        return {
            BY_TIME: self._each(BY_TIME, origin.counts(prefix), COUNTS, self._counts),
            IDS: self._each(IDS, origin.receipts(), RECEIPTS, self._receipts),
            MARKS: self._each(MARKS, origin.marks(prefix), MARKS_AT_ONCE, self._marks),
            JOBS: self._each(JOBS, origin.jobs(), JOBS_AT_ONCE, self._jobs),
        }

    def _each(
        self,
        what: str,
        pages: AsyncIterator[Sequence[T]],
        size: int,
        take: Callable[[Sequence[T], bool], Awaitable[int]],
    ) -> Step:
        async def step(write: bool) -> tuple[int, int]:
            there, new = 0, 0
            async for some in batched(pages, size):
                new += await take(some, write)
                there += len(some)
                self._progress(WHAT[what], there)
            return there, new

        return step

    def _differs(self, name: str, what: str) -> None:
        self._left.add(name)  # no counter has an empty name
        self.report.differences.append((name, what))

    async def _totals(self, prefix: str) -> None:
        def take(one: ImportOutcome | str) -> None:
            if isinstance(one, ImportOutcome):
                self.report.origin[TOTALS] += 1
                self.report.copied[TOTALS] += bool(one.added)
                if one.flaw:
                    self._differs(one.name, one.flaw)
                self._progress(WHAT[TOTALS], self.report.origin[TOTALS])

        importer = Importer(self, self._store, self._target.overlay, self._target.clock, self._options)
        await importer.run(prefix, take)

    async def counter(self, name: str) -> Foreign | None:
        return await self._origin.counter(name)

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        async with aclosing(pages_of(self._origin, prefix)) as pages:
            async for page in pages:
                for one in await self._checked(page):
                    yield one

    async def _checked(self, page: Sequence[Foreign]) -> Sequence[Foreign]:
        marks, totals = await self._there(page)
        checked = []
        for one in page:
            there = totals[one.name]
            if not there.shards and there.guard == Guard():
                self._fresh.add(one.name)
            other = there.value - marks.get(one.name, 0)
            if other and not one.flaw and not self._merge:
                flaw = f"of the target's {there.value}, {other} was {FOREIGN}"
                checked.append(one._replace(flaw=flaw))
                continue
            if not (one.flaw or one.total or there.shards or self._options.dry):
                await self._store.raise_shards(one.name, self._options.shards)
            checked.append(one)
        return checked

    async def _counts(self, some: Sequence[MovedCount], write: bool) -> int:
        arrivals, now = self._target.arrivals, await self._store.now()
        adds = []
        for one in some:
            fits = abs(one.held) < 2**63
            if flaw := one.flaw or ("" if fits else f"{one.held} in a {one.bucket.by} is beyond 64 bits"):
                self._flaws.setdefault(one.bucket.counter, flaw)
            elif one.bucket.counter not in self._left:
                adds.append(one.at(now, self._shard))
        held = await self._insist(lambda: arrivals.held(adds))
        lacking = [(add, before) for add, before in zip(adds, held, strict=True) if before != add.delta]
        if not self._merge:
            await self._check_others([add.bucket for add, before in lacking if before is None])
        new = [add for add, _ in lacking if add.bucket.counter not in self._left]
        if write and new:
            await self._insist(lambda: arrivals.put(new))
        return len(new)

    async def _check_others(self, buckets: Iterable[TimeBucket]) -> None:
        """Leave counters alone that have counts in these buckets, to which this copy has not written: it may bring the
        same ones.
        """

        async def check(name: str, by: str, begins: Sequence[WallMillis]) -> None:
            async with self._store.snapshot() as snapshot:
                found = (await snapshot.counts(name, by, min(begins), max(begins) + 1)).buckets
            if name not in self._left and any(found.get(begin) for begin in begins):
                self._differs(name, f"the target has counts by time that were {FOREIGN}")

        series: dict[tuple[str, str], list[WallMillis]] = {}
        for name, by, begin in buckets:
            if name not in self._fresh:
                series.setdefault((name, by), []).append(begin)
        for some in pages(series.items(), AT_ONCE):
            await asyncio.gather(*[self._insist(partial(check, *of, begins)) for of, begins in some])

    async def _receipts(self, some: Sequence[MovedReceipt], write: bool) -> int:
        """Insert the receipts that are not there."""
        later = await self._after_waits()
        receipts = {one.key: one.at(later, self._shard) for one in some}

        async def once() -> Mapping[str, Receipt]:
            found = (await self._store.receipts(receipts.keys())).found
            new = tuple([one for key, one in receipts.items() if key not in found])
            if new and write:
                try:
                    await self._store.apply(Commit(new, ()))
                except AlreadyAppliedError as error:  # another copy was faster
                    raise TransientError(str(error)) from error
            return found

        found = await self._insist(once)
        for one in some:
            there = found.get(one.key)
            if (
                there is not None
                and (self._merge or there.state == DEAD)
                and (why := one.counted_twice(there, self._shard))
            ):
                self._differs("", why)
        return len(receipts) - len(found)

    async def _marks(self, some: Sequence[Mark], write: bool) -> int:
        """Add to the marks there what the origin's have grown by since the last copy."""
        store, new = self._store, 0
        for source, its in groupby(sorted(some), attrgetter("source")):
            totals = {one.counter: one.total for one in its if one.counter not in self._left}
            copied = marks_of(self.name, source)

            async def once(source: str = source, totals: Mapping[str, int] = totals, copied: str = copied) -> int:
                there, known = [await store.marks(name, [*totals]) for name in (source, copied)]
                moves = []
                for name, total in totals.items():
                    before, seen = there.get(name, 0), known.get(name, 0)
                    if before != seen and not self._merge:
                        if name not in self._left:
                            self._differs(name, f"the target has imports from {source} that were {FOREIGN}")
                    elif total != seen:
                        moves += [Mark(source, name, before, before + total - seen), Mark(copied, name, seen, total)]
                if moves and write:
                    try:
                        await store.apply(Commit((), (), marks=tuple(moves)))
                    except ChangedError as error:  # another copy or import was faster
                        raise TransientError(str(error)) from error
                return len(moves) // 2

            new += await self._insist(once)
        return new

    async def _jobs(self, some: Sequence[MovedJob], write: bool) -> int:
        """Keep the jobs that are not there."""
        later, ended = await self._after_waits(), []
        for one in some:
            if one.state.state == RUNNING:
                self._flaws[f"job {one.state.job.id}"] = "the job runs in the origin: let it end, or stop it"
            else:
                ended.append(one.at(later))

        async def once() -> int:
            async with self._store.audit_data() as data:
                there = {state.job.id async for page in data.jobs() for state in page}
            new = [state for state in ended if state.job.id not in there]
            if new and write:
                await self._target.arrivals.keep(new)
            return len(new)

        return await self._insist(once)

    async def _unequal(self, prefix: str) -> AsyncGenerator[tuple[str, str], None]:
        """Counters whose totals differ. In counters that may hold something else, what was copied is compared."""
        async with aclosing(pages_of(self._origin, prefix)) as pages:
            async for page in pages:
                marks, totals = await self._there(page)
                for one in page:
                    there = marks.get(one.name, 0) if self._merge else totals[one.name].value
                    if there != one.total and one.name not in self._left:
                        yield one.name, f"{one.total} in the origin, {there} in the target"

    async def _there(self, page: Sequence[Foreign]) -> tuple[Mapping[str, int], Mapping[str, Total]]:
        """What the target holds of these counters: the marks of this copy, and the totals."""
        names = [one.name for one in page]
        marks = await self._store.marks(self.name, names)
        async with self._store.snapshot() as snapshot:
            totals, _ = await snapshot.read(names, ())
        return marks, totals

    async def _after_waits(self) -> StoreMillis:
        """The time from which receipts have to live: a retry that was accepted in the target may wait for that long
        until it meets one.
        """
        return StoreMillis(await self._store.now() + self._target.waits)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        return await insist(call, TransientError, within(RETRY_FOR, self._target.clock), Backoff(0.01, 1.0))


async def pages_of(origin: Origin, prefix: str) -> AsyncGenerator[Sequence[Foreign], None]:
    page: list[Foreign] = []
    async with aclosing(origin.counters(prefix)) as counters:
        async for one in counters:
            if isinstance(one, Foreign):
                page.append(one)
            if len(page) == PAGE:
                yield page
                page = []
    if page:
        yield page


async def batched(pages: AsyncIterator[Sequence[T]], size: int) -> AsyncGenerator[Sequence[T], None]:
    rest: list[T] = []
    async for page in pages:
        rest += page
        while len(rest) >= size:
            yield rest[:size]
            del rest[:size]
    if rest:
        yield rest
