"""The contract of a store that finds the largest counters: each that can be among them is in what it names."""

from collections.abc import Collection, Sequence

from shared.model.words import Entry, ShardAdd, View
from shared.ports.store import Store
from tests.contracts.dead import buried, dead
from tests.contracts.removals import delete
from tests.contracts.store import commit

PENDING = View((Entry("one", -1_000), Entry("other", 1_000)))
"""Of a counter whose total may be anything."""


async def largest(store: Store, limit: int, *prefixes: str, besides: Collection[str] = ()) -> Sequence[str]:
    async with store.snapshot() as snapshot:
        return await store.largest(snapshot, prefixes or ("",), limit, dict.fromkeys(besides, PENDING))


class RankedContract:
    """Inherit it beside `StoreSuites`, if the store can rank."""

    async def test_the_largest_totals_are_named_and_of_equal_ones_the_first_names(self, store: Store) -> None:
        await store.apply(
            commit(ShardAdd("a", 0, 5, 2), ShardAdd("a", 1, 5, 2), ("b", 9), ("c", 9), ("d", -1), ("e", 0))
        )
        for limit, names in ((1, ["a"]), (2, ["a", "b"]), (4, ["a", "b", "c", "e"]), (9, ["a", "b", "c", "d", "e"])):
            assert sorted(await largest(store, limit)) == names

    async def test_each_prefix_has_its_own(self, store: Store) -> None:
        await store.apply(commit(("a:1", 1), ("a:2", 2), ("b:1", 100), ("b:2", 200), ("c", 9)))
        assert sorted(await largest(store, 1, "a:", "b:")) == ["a:2", "b:2"]

    async def test_those_that_are_looked_at_anyway_take_no_place(self, store: Store) -> None:
        await store.apply(commit(("a", 9), ("b", 8), ("c", 7)))
        assert {*await largest(store, 1, besides=["a", "b", "never"])} == {"a", "b", "c", "never"}

    async def test_what_is_dead_is_always_named_and_takes_no_place(self, store: Store) -> None:
        await store.apply(commit(("a", 9), ("b", 8), ("c", 7)))
        await store.apply(buried(dead("k", {"a": -9, "x": 1})))
        assert {*await largest(store, 1)} == {"a", "b", "x"}

    async def test_what_is_deleted_takes_no_place(self, store: Store) -> None:
        await store.apply(commit(("a", 9), ("b", -1), ("c", -2)))
        await store.raise_shards("d", 2)
        await delete(store, "a")
        assert {*await largest(store, 2)} >= {"b", "d"}

    async def test_it_is_of_the_instant_of_the_snapshot(self, store: Store) -> None:
        await store.apply(commit(("a", 9), ("b", 8)))
        async with store.snapshot() as snapshot:
            await store.apply(commit(("b", 10)))
            assert [*await store.largest(snapshot, [""], 1, {})] == ["a"]
