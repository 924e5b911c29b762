"""Several processes fill the shards of one counter, and none of them tries for long."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from flusher.shards import ShardBook
from shared.model.buckets import NEVER
from shared.model.errors import ShardFullError
from shared.model.words import SHARD_FULL, Commit, Receipt
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

COUNTER = "hot"
ROUNDS = 30
OTHERS = 12
"""Shards that another process makes and fills at once."""


def commits(store: SqliteStore, book: ShardBook) -> Callable[[], Awaitable[int]]:
    """A flusher's way to commit a sum that fills a shard. Each call returns how many tries it took."""
    made = 0

    async def commit() -> int:
        nonlocal made
        tries = 0
        while True:
            made += 1
            tries += 1
            assert tries < 100, "it tries for ever"
            adds = await book.adds({COUNTER: SHARD_FULL // 2 + 1})
            try:
                await store.apply(Commit((Receipt(f"e:{id(book)}-{made}", NEVER),), adds))
            except ShardFullError as error:
                book.full(error.shards)
            else:
                book.done(adds)
                return tries

    return commit


async def test_two_flushers_fill_shards_in_turn(tmp_path: Path) -> None:
    store = SqliteStore(Database(tmp_path / "countersink.db"), ManualClock())
    both = [commits(store, ShardBook(store, ManualClock(), 1)) for _ in range(2)]
    tries = [await both[turn % 2]() for turn in range(ROUNDS)]
    assert max(tries) <= 5
    await store.database.close()


async def test_many_shards_that_others_filled_are_passed_with_a_look(tmp_path: Path) -> None:
    store = SqliteStore(Database(tmp_path / "countersink.db"), ManualClock())
    mine, other = [commits(store, ShardBook(store, ManualClock(), 1)) for _ in range(2)]
    await mine()
    for _ in range(3 * OTHERS):
        await other()
    assert await mine() <= 3 * OTHERS
    await store.database.close()
