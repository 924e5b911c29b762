"""The contracts of what some stores find: which envelopes are applied, the largest counters, and parts of names."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from shared.model.buckets import Instant
from shared.model.words import APPLIED, Commit, Entry, Receipt, ShardAdd, View
from shared.ports.store import AppliedEnvelopes, Commits, NameSearch, Store
from tests.contracts.dead import buried, dead
from tests.contracts.removals import delete
from tests.contracts.store import LATER, commit


class Findable(Commits, AppliedEnvelopes, Protocol):
    """A store that can find them."""


def receipts(*ids: str) -> Commit:
    return Commit(tuple([Receipt(f"key of {one}", LATER, APPLIED, envelope=one) for one in ids]), ())


class AppliedContract:
    """Of a store that finds which envelopes are applied."""

    async def test_applied_envelopes_are_found_by_a_range_of_ids(self, store: Findable) -> None:
        await store.apply(receipts("a1", "a2", "a4"))
        await store.apply(receipts("a6", "a6b", "b"))
        await store.apply(Commit((Receipt("none", LATER),), ()))
        _, found = await store.applied("a2", "a6", 10)
        assert sorted(found) == ["key of a2", "key of a4", "key of a6"]
        _, none = await store.applied("a7", "az", 10)
        assert not [*none]

    async def test_at_most_so_many_are_found(self, store: Findable) -> None:
        await store.apply(receipts("a1", "a2", "a3"))
        _, found = await store.applied("a", "b", 2)
        assert len([*found]) <= 2

    async def test_what_is_found_was_applied_until_the_instant(self, store: Findable) -> None:
        """Else readers that began before would miss it in the store, and no longer find it pending."""
        times: dict[str, Instant] = {}

        async def apply() -> None:
            for number in range(200):
                times[f"key of e{number}"] = await store.apply(receipts(f"e{number}"))
                await asyncio.sleep(0)

        applying = asyncio.create_task(apply())
        while not applying.done():
            time, found = await store.applied("e", "f", 1_000)
            await asyncio.sleep(0)
            assert all(times[key] <= time for key in found if key in times)
        await applying
        time, found = await store.applied("e", "f", 1_000)
        assert set(found) == set(times)
        assert time >= max(times.values())

    async def test_a_revived_receipt_is_found(self, store: Findable) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        _, none = await store.applied("e", "f", 10)
        assert not [*none]
        await store.apply(Commit((), (), revived=(Receipt("k", LATER, APPLIED, envelope="e1"),)))
        _, found = await store.applied("e", "f", 10)
        assert [*found] == ["k"]


PENDING = View((Entry("one", -1_000), Entry("other", 1_000)))
"""Of a counter whose total may be anything."""


async def largest(store: Store, limit: int, *prefixes: str, besides: Collection[str] = ()) -> Sequence[str]:
    async with store.snapshot() as snapshot:
        return await store.largest(snapshot, prefixes or ("",), limit, dict.fromkeys(besides, PENDING))


class RankedContract:
    """Of a store that finds the largest counters. Each that can be among them is in what it names."""

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


class Searchable(Commits, NameSearch, Protocol):
    """A store that can find them."""


class SearchContract:
    """Of a store that finds counters by a part of their names."""

    async def test_names_are_found_by_a_part(self, store: Searchable) -> None:
        names = [
            "blog",
            "home:a",
            "page:%",
            "page:Home",
            "page:home",
            "page:home/é",
            "page:\U0001f600home",
            "xhome",
        ]
        await store.apply(commit(*[(name, 1) for name in names]))
        found = [names[1], *names[4:]]
        assert [*await store.names_with("home", "", "", 10)] == found
        assert [*await store.names_with("home", "page:", "", 10)] == found[1:4]
        assert [*await store.names_with("home", "page:", "", 2)] == found[1:3]
        assert [*await store.names_with("home", "page:", "page:home", 10)] == found[2:4]
        assert [*await store.names_with("%", "", "", 10)] == ["page:%"]
        assert [*await store.names_with("\U0001f600", "", "", 10)] == ["page:\U0001f600home"]
        assert [*await store.names_with("_", "", "", 10)] == []
