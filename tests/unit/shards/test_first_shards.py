"""Where a file's flusher adds: to the first shard that is not full."""

from pathlib import Path

import pytest

from flusher.flush.commit_loop import KNOWN, FirstShards
from shared.model.errors import ShardFullError
from shared.model.words import SHARD_FULL, Commit, Receipt, ShardAdd
from shared.runtime.clock import SystemClock
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore

NAMES = ['a"b', "c\\d", "é/\u2028", "plain"]


async def test_a_full_shard_is_followed_by_the_next(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    store, book = SqliteStore(database, SystemClock()), FirstShards(1)
    await store.apply(Commit((), await book.adds({"a": SHARD_FULL, "b": 1})))
    await store.apply(Commit((), await book.adds({"a": 1, "b": 1})))
    commit = Commit((), await book.adds({"a": 1, "b": 1}))
    with pytest.raises(ShardFullError) as refused:
        await store.apply(commit)
    assert [*refused.value.shards] == [("a", 0)]
    book.full(refused.value.shards)
    await store.apply(Commit((), await book.adds({"a": 1, "b": 1})))
    async with store.snapshot() as snapshot:
        totals, _ = await snapshot.read(["a", "b"], ())
    assert [totals[name][:2] for name in "ab"] == [(SHARD_FULL + 2, 2), (3, 1)]
    await database.close()


async def test_a_new_counter_gets_as_many_shards_as_the_settings_say_and_a_compacted_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path / "a.db")
    store, book = SqliteStore(database, SystemClock()), FirstShards(5)
    await store.apply(Commit((), await book.adds(dict.fromkeys(NAMES, 1))))
    assert await store.shards(NAMES) == dict.fromkeys(NAMES, 5)
    await store.compact("plain", 2, Receipt("k1", expires=0))  # type: ignore[arg-type] # a time
    await store.apply(Commit((), await book.adds(dict.fromkeys(NAMES, 1))))
    assert await store.shards(NAMES) == dict.fromkeys(NAMES, 5) | {"plain": 2}
    async with store.snapshot() as snapshot:
        totals, _ = await snapshot.read(NAMES, ())
    assert {name: total.value for name, total in totals.items()} == dict.fromkeys(NAMES, 2)
    await database.close()


async def test_adds_to_first_shards_read_like_any_others() -> None:
    adds = await FirstShards(5).adds({"a": 1, "b": -2})
    assert [*adds] == [ShardAdd("a", 0, 1, 5, KNOWN), ShardAdd("b", 0, -2, 5, KNOWN)] == [adds[0], *adds[1:]]
    assert len(adds) == 2
    assert not await FirstShards(5).adds({})
