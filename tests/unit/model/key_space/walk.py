"""A walk over all names in the store: takes a page of a range, has it processed, splits the rest, and so on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.model.ranges import Range, split

Visit = Callable[[Sequence[str]], Awaitable[object]]


class Names(Protocol):
    """What a walk needs of a store."""

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """As `Store.names`."""
        ...


@dataclass(slots=True)
class Report:
    """What a walk has done so far. Each task reads its range once."""

    tasks: int = 0
    empty: int = 0
    """Those that found no name."""
    full: int = 0
    """Those that found a full page, so that the rest of their range had to be split."""
    names: int = 0
    depth: int = 0
    """The most reads that had to be one after another."""

    @property
    def pages(self) -> int:
        """That were processed."""
        return self.tasks - self.empty


class Walk:
    """Of one run. Each name that is there all the time is visited; once, if nothing fails.

    `open` are the ranges that are not done, those in work too: whoever goes on from them misses nothing, and visits
    again what was in work. It is short, since the deepest ranges go first.
    """

    def __init__(self, store: Names, prefix: str = "", *, page: int, ranges: Iterable[Range] = (Range(),)) -> None:
        self._store = store
        self._prefix = prefix
        self._page = page
        self._waiting = [*ranges][::-1]
        self._working: dict[asyncio.Task[tuple[int, list[Range]]], Range] = {}
        self.report = Report()

    @property
    def open(self) -> list[Range]:
        return sorted([*self._waiting, *self._working.values()], key=lambda one: one.after)

    async def run(self, visit: Visit, at_once: int) -> Report:
        """Visit everything, so many pages at once. The first error ends it, and what is in work is cancelled."""
        try:
            while self._waiting or self._working:
                while self._waiting and len(self._working) < at_once:
                    task = self._waiting.pop()
                    self._working[asyncio.create_task(self._take(task, visit), name=f"walk behind {task.after!r}")] = (
                        task
                    )
                done, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
                for one in [one for one in self._working if one in done]:  # in the order in which they began
                    self._close(one)
        finally:
            await self._abandon()
        return self.report

    async def _take(self, task: Range, visit: Visit) -> tuple[int, list[Range]]:
        page = await self._store.names(self._prefix, task.after, self._page, task.until)
        if page:
            await visit(page)
        return len(page), split(self._prefix, task, page) if len(page) >= self._page else []

    def _close(self, done: asyncio.Task[tuple[int, list[Range]]]) -> None:
        names, parts = done.result()
        task = self._working.pop(done)
        self._waiting += reversed(parts)
        self.report.tasks += 1
        self.report.empty += not names
        self.report.full += names >= self._page
        self.report.names += names
        self.report.depth = max(self.report.depth, task.depth)

    async def _abandon(self) -> None:
        for one in self._working:
            one.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        for one in [*self._working]:
            if not one.cancelled() and one.exception() is None:
                self._close(one)
        self._waiting += self._working.values()
        self._working.clear()
