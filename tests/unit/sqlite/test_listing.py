"""The work of SQLite for a page of names is the same wherever the page is."""

from typing import Final

import pytest

from shared.model.buckets import NEVER
from shared.model.words import Commit, Receipt, ShardAdd
from shared.sqlite.store import SqliteStore

NUMBER: Final = 20_000
PAGE: Final = 100
_STEPS: Final = 100
"""Instructions of SQLite between two calls of the counter."""


async def steps_of(store: SqliteStore, prefix: str, after: str) -> int:
    """Hundreds of SQLite's instructions that a page takes."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with store.database.reading() as db:
        db.set_progress_handler(count, _STEPS)
        names = await store.names(prefix, after, PAGE)
        db.set_progress_handler(None, 0)
    assert len(names) == PAGE
    assert all(name > after and name.startswith(prefix) for name in names)
    return counted


@pytest.mark.parametrize("prefix", ["", "c"])
async def test_a_page_far_behind_takes_no_longer_than_the_first(store: SqliteStore, prefix: str) -> None:
    names = [f"c{number:06}" for number in range(NUMBER)]
    await store.apply(Commit((Receipt("e:1", NEVER),), tuple(ShardAdd(name, 0, 1, 1) for name in names)))
    first = await steps_of(store, prefix, "")
    far = await steps_of(store, prefix, names[-PAGE - 1])
    assert far <= first + 1, "SQLite looks through the names before the page"
