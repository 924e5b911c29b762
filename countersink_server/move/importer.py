"""Adds what another application has counted. One commit adds what its total has grown by since the last import, and
moves the mark that records it.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from shared.model.buckets import Millis, StoreMillis
from shared.model.errors import (
    AlreadyAppliedError,
    ChangedError,
    LateError,
    RefusedError,
    ShardFullError,
    ShrunkError,
    StorageFullError,
    TransientError,
)
from shared.model.moving import Foreign, Source
from shared.model.receipts import Tally, key_of_import, notes_of_commit
from shared.model.words import MARKED, MAX_SUM, Bounds, Commit, Mark, Receipt, add_to, flaw_of_name
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.runtime.clock import Clock
from shared.runtime.ids import mint
from shared.runtime.retry import Backoff, insist, within

T = TypeVar("T")

BATCH: Final = 100
"""Counters in a commit. Each needs three entities, and some stores accept 500 in a commit."""
AT_ONCE: Final = 4
RETRY_FOR: Final = 20.0
"""Seconds to retry while the store fails or other imports are faster."""


class ImportOutcome(NamedTuple):
    name: str
    total: int
    """Its total in the source."""
    added: int
    flaw: str = ""
    """Why it was not imported; empty if it was."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    receipts_live: Millis
    shards: int = 1
    """Shards of a counter that does not exist here yet."""
    dry: bool = False
    """Report what would be added, and write nothing."""
    shrink: bool = False
    """If a counter is now lower than its mark, subtract the difference."""


@dataclass(eq=False)
class Importer:
    source: Source
    store: Store
    overlay: Overlay
    clock: Clock
    options: ImportOptions
    pick: Callable[[int], int] = random.randrange
    backoff: Callable[[], Backoff] = lambda: Backoff(0.01, 1.0)

    async def run(self, prefix: str, tell: Callable[[ImportOutcome | str], None]) -> None:
        """Import all counters whose names start with `prefix`. `tell` hears of each as soon as it is done."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def take(batch: Mapping[str, int]) -> None:
            try:
                for outcome in await self._take(_Work(dict(batch))):
                    tell(outcome)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group, aclosing(self._batches(prefix, tell)) as batches:
            async for batch in batches:
                await slots.acquire()
                group.create_task(take(batch), name="import")

    async def _batches(
        self, prefix: str, tell: Callable[[ImportOutcome | str], None]
    ) -> AsyncGenerator[Mapping[str, int], None]:
        batch: dict[str, int] = {}
        async with aclosing(self.source.counters(prefix)) as counters:
            async for one in counters:
                if isinstance(one, str):
                    tell(one)
                elif flaw := flaw_of(one):
                    tell(ImportOutcome(one.name, one.total, 0, flaw))
                else:
                    batch[one.name] = one.total
                if len(batch) >= BATCH:
                    yield batch
                    batch = {}
        if batch:
            yield batch

    async def _take(self, work: "_Work") -> list[ImportOutcome]:
        until = self.clock.monotonic() + RETRY_FOR
        backoff = self.backoff()
        while work.totals and (todo := await self._todo(work)):
            try:
                done = await self._apply(await self._commit(todo, work.full))
            except ShardFullError as error:
                work.full.update(error.shards)
                continue
            except RefusedError as error:
                return await self._apart(work, str(error))
            if done:
                work.add(todo)
            elif self.clock.monotonic() < until:
                await backoff.wait()
            else:
                raise TransientError("another import of the same source is running: run this one again when it is done")
        return work.outcomes

    async def _todo(self, work: "_Work") -> list[Mark]:
        """The next additions, in steps that a shard can take."""
        marks = await self._insist(lambda: self.store.marks(self.source.name, [*work.totals]))
        todo: list[Mark] = []
        for name in [*work.totals]:
            mark, flaw = marks.get(name, 0), ""
            if went_back(work.totals[name], mark):
                work.totals[name], flaw = await self._again(name, mark)
            rest = 0 if flaw else work.totals[name] - mark
            if rest and not self.options.dry:
                todo.append(Mark(self.source.name, name, mark, mark + max(-MAX_SUM, min(rest, MAX_SUM))))
            else:
                work.close(name, rest, flaw)
        return todo

    async def _apart(self, work: "_Work", why: str) -> list[ImportOutcome]:
        """Import each half alone: the store does not say which counter it refuses."""
        names = [*work.totals]
        if len(names) == 1:
            work.close(names[0], 0, f"the store refuses it: {why}")
            return work.outcomes
        middle = len(names) // 2
        halves = [{name: work.totals[name] for name in half} for half in (names[:middle], names[middle:])]
        return [*work.outcomes, *[one for half in halves for one in await self._take(_Work(half, added=work.added))]]

    async def _again(self, name: str, mark: int) -> tuple[int, str]:
        """Read again a counter that is lower than its mark: another import may have seen a later total meanwhile."""
        one = await self._insist(lambda: self.source.counter(name)) or Foreign(name)
        flaw = flaw_of(one)
        if not flaw and went_back(one.total, mark) and not self.options.shrink:
            flaw = f"its total fell to {one.total}, and {mark} were imported before: subtract with --shrink"
        return one.total, flaw

    async def _commit(self, todo: Sequence[Mark], full: set[tuple[str, int]]) -> Commit:
        numbers = await self._insist(lambda: self.store.shards([mark.counter for mark in todo]))
        adds = []
        for mark in todo:
            known = numbers.get(mark.counter, 0)
            its = frozenset(shard for name, shard in full if name == mark.counter)
            delta = mark.total - mark.seen
            adds.append(add_to(mark.counter, delta, known, new=self.options.shards, full=its, pick=self.pick))
        commit_id = mint()
        (note,) = notes_of_commit([""], commit_id, Tally(), {add.counter: add.delta for add in adds})
        now = await self._insist(self.store.now)
        receipt = Receipt(key_of_import(commit_id), StoreMillis(now + self.options.receipts_live), note=note)
        changes = tuple([mark.counter for mark in todo])
        epoch = await self._insist(lambda: self.overlay.mark(receipt.key, changes))
        bounds = Bounds() if epoch is None else Bounds(StoreMillis(now + MARKED), epoch=epoch)
        return Commit((receipt,), tuple(adds), marks=tuple(todo), bounds=bounds, changes=changes)

    async def _apply(self, commit: Commit) -> bool:
        key = commit.receipts[0].key
        try:
            time = await self._insist(lambda: self.store.apply(commit))
        except (AlreadyAppliedError, ChangedError, LateError, ShrunkError):
            time, found = await self._insist(lambda: self.store.receipts([key]))
            if key not in found:  # it exists if an earlier attempt was committed and its answer lost
                return False
        await self._insist(lambda: self.overlay.changed(commit.changes, time, key))
        return True

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        limit = within(RETRY_FOR, self.clock)
        return await insist(call, TransientError, limit, self.backoff(), never=StorageFullError)


def went_back(total: int, mark: int) -> bool:
    """Whether the total is nearer to zero than the mark, as after a reset or when shards were lost."""
    return (total - mark) * mark < 0


@dataclass(slots=True)
class _Work:
    totals: dict[str, int]
    """Totals of the counters that are not done."""
    outcomes: list[ImportOutcome] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    full: set[tuple[str, int]] = field(default_factory=set)
    """Shards that are full."""

    def add(self, marks: Sequence[Mark]) -> None:
        for _, name, seen, total in marks:
            self.added[name] = self.added.get(name, 0) + total - seen
            if self.totals[name] == total:
                self.close(name, 0, "")

    def close(self, name: str, rest: int, flaw: str) -> None:
        self.outcomes.append(ImportOutcome(name, self.totals.pop(name), self.added.get(name, 0) + rest, flaw))


def flaw_of(one: Foreign) -> str:
    """Why this counter can't be imported; empty if it can."""
    if one.flaw:
        return one.flaw
    flaw = flaw_of_name(one.name)
    return "" if flaw is None else f"its name {flaw}"
