"""Rows of walks over simulated key spaces: how many pages are read, and how many of them one after another.

Nothing is timed: each run gives the same figures. The names are computed, and no store is asked.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log2
from typing import Final

from bench.figures import Figure, Plan, Row
from tests.unit.model.key_space.spaces import SPACES
from tests.unit.model.key_space.virtual import VirtualStore
from tests.unit.model.key_space.walk import walk

PAGE: Final = 1_000
MOST: Final = 3.0
"""Times as many reads as there are full pages in the space."""
DEEPER: Final = 1.5
"""Times as many rounds as halving would take if everybody knew where the middle is."""


def _row(plan: Plan, name: str) -> Row:
    keys = SPACES[name](plan.names)
    row = Row(f"space-{name}", f"a walk over {keys.size:,} names, {name}", "reads", target=MOST)
    visited = 0

    def visit(page: Sequence[str]) -> None:
        nonlocal visited
        visited += len(page)

    report = asyncio.run(walk(VirtualStore(keys), visit, page=PAGE))
    if not visited == report.names == keys.size:
        raise RuntimeError(f"{visited} of {keys.size} names were visited")
    ideal = ceil(keys.size / PAGE)
    row.ours, row.reference = Figure.of([report.tasks]), Figure.of([ideal])
    row.ratio = Figure.of([report.tasks / ideal])
    rounds = log2(max(ideal, 2))
    row.met = report.tasks <= MOST * ideal and report.depth <= DEEPER * rounds
    row.more |= {
        "names": keys.size, "page": PAGE, "tasks": report.tasks, "pages": report.pages, "full": report.full,
        "empty": report.empty, "depth": report.depth, "ideal_depth": rounds,
    }  # fmt: skip
    first, last = keys.key(0), keys.key(keys.size - 1)
    row.notes.append(
        f"depth {report.depth} (halving: {rounds:.1f}), {report.pages:,} pages, {report.full:,} of them full,"
        f" {report.empty:,} empty reads; {_short(first)} to {_short(last)}; the target is a most"
    )
    return row


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:20]}…{name[-19:]}"


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {f"space-{name}": partial(_row, name=name) for name in SPACES}
