"""The contract of removing what was deleted: nothing of it is left, and nothing that comes meanwhile is lost."""

import asyncio

import pytest

from shared.model.errors import ChangedError
from shared.model.words import Guard, ShardAdd
from shared.ports.store import Store
from tests.contracts.audit_data import data
from tests.contracts.guards import guard, setting
from tests.contracts.store import commit, total


async def delete(store: Store, counter: str = "a") -> None:
    """As a set does it: what it holds is taken off somewhere."""
    held = await total(store, counter)
    seen = await guard(store, counter)
    await store.apply(setting(f"delete-{counter}-{seen.version}", -held, seen, counter=counter, deleted=True))


class RemovalContract:
    """Inherit it beside `GuardContract`."""

    async def test_what_was_deleted_is_found_in_pages_until_it_is_removed(self, store: Store) -> None:
        names = ["a", "b", "c", "d", "\N{SNOWMAN}"]
        for name in names:
            await store.apply(commit((name, 5)))
        for name in names[1:]:
            await delete(store, name)
        found: list[str] = []
        for expected in (3, 1, 0):
            page = await store.deleted(found[-1] if found else "", 3)
            assert len(page) == expected
            found += page
        assert sorted(found) == names[1:]
        assert await store.remove("c")
        assert {*await store.deleted("", 100)} == {"b", "d", "\N{SNOWMAN}"}
        assert {*await store.deleted_among([*names, "never", "b"])} == {"b", "d", "\N{SNOWMAN}"}
        assert not await store.deleted_among([])
        await store.apply(setting("again", 1, await guard(store, "b"), counter="b"))
        assert {*await store.deleted_among(names[:4])} == {"d"}

    async def test_nothing_is_left_but_the_guard(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 0, 5, 4), ShardAdd("a", 2, 7, 4), ("b", 1)))
        await delete(store)
        assert await store.remove("a")
        _, configs, shards = await data(store)
        assert [config.num_shards for config in configs if config.counter == "a"] in ([], [0])
        assert {shard.counter for shard in shards} == {"b"}
        assert await store.shards(["a", "b"]) == {"b": 1}
        assert [*await store.names("", "", 10)] == ["b"]
        assert await total(store, "a") == 0
        assert not (await guard(store)).deleted
        assert (await guard(store)).version
        assert not await store.remove("a")

    async def test_only_what_is_marked_and_holds_nothing_is_removed(self, store: Store) -> None:
        await store.apply(commit(("zero", 0), ("used", 5), ("again", 5)))
        for name in ("used", "again"):
            await delete(store, name)
        await store.apply(commit(("used", 3)))
        await store.apply(setting("again", 0, await guard(store, "again"), counter="again"))
        for name in ("zero", "used", "again", "never"):
            assert not await store.remove(name)
        assert await store.shards(["zero", "used", "again"]) == {"zero": 1, "used": 1, "again": 1}
        assert (await total(store, "used"), (await guard(store, "used")).deleted) == (3, True)
        assert await guard(store, "never") == Guard()

    async def test_who_saw_what_was_removed_then_sets_nothing(self, store: Store) -> None:
        """It may have nothing to add to shards that it saw, and they are gone."""
        await store.apply(commit(("a", 5)))
        await delete(store)
        seen = await guard(store)
        assert await store.remove("a")
        with pytest.raises(ChangedError):
            await store.apply(setting("late", 0, seen))

    async def test_what_comes_after_a_removal_counts(self, store: Store) -> None:
        for number in range(3):
            await store.apply(commit(ShardAdd("a", 2, 5, 3), ShardAdd("a", number, 1, 3)))
            assert await total(store, "a") == 6
            await delete(store)
            assert await store.remove("a")
        await store.apply(commit(ShardAdd("a", 2, 7, 3)))
        assert await store.shards(["a"]) == {"a": 3}
        assert await total(store, "a") == 7
        await store.apply(setting("again", 1, await guard(store)))
        assert await total(store, "a") == 8

    async def test_nothing_that_comes_meanwhile_is_lost(self, store: Store) -> None:
        """Pairs that cancel each other in different shards, so that it may be removed again and again."""
        await delete(store)
        done = asyncio.Event()
        removed = 0

        async def remove() -> None:
            nonlocal removed
            while not done.is_set():
                removed += await store.remove("a")
                seen = await guard(store)
                if not seen.deleted:
                    await store.apply(setting(f"mark{removed}", 0, seen, deleted=True))
                await asyncio.sleep(0)

        async def add(begin: int) -> None:
            for number in range(begin, begin + 8):
                await store.apply(commit(ShardAdd("a", number % 3, 4**number, 3)))
                await asyncio.sleep(0)
                await store.apply(commit(ShardAdd("a", (number + 1) % 3, -(4**number), 3)))
                await asyncio.sleep(0.002)  # in which it holds nothing

        task = asyncio.create_task(remove())
        await asyncio.gather(add(0), add(8))
        while not removed:  # at a busy machine, nobody may have looked in the moments before
            await asyncio.sleep(0.01)
        last = asyncio.gather(*(store.apply(commit(ShardAdd("a", number % 5, 4**number, 5))) for number in range(12)))
        await last
        done.set()
        await task
        assert await total(store, "a") == sum(4**number for number in range(12))
        assert removed
