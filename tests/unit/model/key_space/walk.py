"""A walk over all names in a store. Each task takes a page of its range and splits the rest, as those of a job do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.model.ranges import Range, split


class Names(Protocol):
    """What a walk needs of a store."""

    async def names(self, prefix: str, after: str, limit: int, until: str | None = None) -> Sequence[str]:
        """As `Store.names`."""
        ...


@dataclass(slots=True)
class Report:
    """What a walk did. Each task reads its range once."""

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
        """Those that found a name."""
        return self.tasks - self.empty


async def walk(store: Names, visit: Callable[[Sequence[str]], object], prefix: str = "", *, page: int) -> Report:
    """Visit each name that is there, in order."""
    waiting, report = [Range()], Report()
    while waiting:
        task = waiting.pop()
        names = await store.names(prefix, task.after, page, task.until)
        if names:
            visit(names)
        if len(names) >= page:
            waiting += reversed(split(prefix, task, names))
        report.tasks += 1
        report.empty += not names
        report.full += len(names) >= page
        report.names += len(names)
        report.depth = max(report.depth, task.depth)
    return report
