"""The contract of a store's guards: of those who saw one version of a counter, one sets it."""

import asyncio

import pytest

from shared.model.errors import AlreadyAppliedError, ChangedError, RefusedError
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from shared.ports.store import Store
from tests.contracts.store import LATER, commit, snapshot_of, total

CONFLICTS = (AlreadyAppliedError, ChangedError)


async def guard(store: Store, counter: str = "a") -> Guard:
    return (await snapshot_of(store, [counter]))[0][counter].guard


def setting(key: str, delta: int, seen: Guard, *, counter: str = "a", deleted: bool = False) -> Commit:
    adds = (ShardAdd(counter, 0, delta, 1),) if delta else ()
    return Commit((Receipt(key, LATER),), adds, guard=(counter, Guard(seen.version, deleted)))


class GuardContract:
    """Inherit it beside `StoreContract`."""

    async def test_each_set_gives_the_guard_another_version_also_if_it_changes_nothing(self, store: Store) -> None:
        seen = [await guard(store)]
        for number, delta in enumerate((0, 0, 5, 0, 5)):
            await store.apply(setting(f"k{number}", delta, seen[-1], deleted=number < 2))
            assert bool(await store.shards(["a"])) == (number >= 2)
            seen.append(await guard(store))
        assert len({one.version for one in seen}) == 6
        assert await total(store, "a") == 10

    async def test_who_saw_an_older_version_applies_nothing(self, store: Store) -> None:
        """Also who saw none, and who saw what a later one has put back."""
        none = await guard(store)
        await store.apply(setting("first", 5, none))
        one = await guard(store)
        await store.apply(setting("second", 5, one, deleted=True))
        for number, seen in enumerate((none, one)):
            with pytest.raises(ChangedError):
                await store.apply(setting(f"late{number}", 100, seen))
        assert await total(store, "a") == 10
        assert (await guard(store)).deleted
        assert set((await store.receipts(["late0", "late1", "first", "second"])).found) == {"first", "second"}

    async def test_the_mark_is_that_of_the_last_set(self, store: Store) -> None:
        for number, deleted in enumerate((True, False, True, True)):
            await store.apply(setting(f"k{number}", 1, await guard(store), deleted=deleted))
            assert (await guard(store)).deleted is deleted

    async def test_each_counter_has_a_guard_of_its_own(self, store: Store) -> None:
        await store.apply(setting("a", 1, Guard(), deleted=True))
        await store.apply(setting("b", 1, Guard(), counter="b"))
        assert ((await guard(store)).deleted, (await guard(store, "b")).deleted) == (True, False)
        assert await guard(store, "c") == Guard()

    async def test_increments_leave_the_guard_alone(self, store: Store) -> None:
        await store.apply(commit(("a", 1)))
        assert await guard(store) == await guard(store, "never") == Guard()
        await store.apply(setting("set", 1, Guard(), deleted=True))
        before = await guard(store)
        await store.apply(commit(("a", 1), ShardAdd("a", 3, 1, 4)))
        await store.raise_shards("a", 7)
        assert await guard(store) == before
        await store.apply(setting("again", 1, before))
        assert await total(store, "a") == 5

    async def test_a_snapshot_has_the_guard_of_its_instant(self, store: Store) -> None:
        await store.apply(setting("k1", 1, Guard()))
        async with store.snapshot() as snapshot:
            await store.apply(setting("k2", 1, await guard(store), deleted=True))
            totals, _ = await snapshot.read(["a"], ())
            assert (totals["a"].value, totals["a"].guard.deleted) == (1, False)
        with pytest.raises(ChangedError):
            await store.apply(setting("k3", 1, totals["a"].guard))

    async def test_of_sets_at_once_one_is_applied(self, store: Store) -> None:
        for round_ in range(3):
            before, was = await guard(store), await total(store, "a")
            sets = [setting(f"k{round_}-{number}", 4**number, before) for number in range(8)]
            outcomes = await asyncio.gather(*map(store.apply, sets), return_exceptions=True)
            assert sorted(type(one).__name__ for one in outcomes) == ["ChangedError"] * 7 + ["int"]
            (winner,) = [number for number, one in enumerate(outcomes) if isinstance(one, int)]
            assert await total(store, "a") == was + 4**winner

    async def test_one_set_twice_is_applied_once(self, store: Store) -> None:
        same = setting("k", 5, Guard())
        outcomes = await asyncio.gather(*(store.apply(same) for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(one, int) for one in outcomes) == 1
        assert sum(isinstance(one, CONFLICTS) for one in outcomes) == 5
        with pytest.raises(AlreadyAppliedError):
            await store.apply(setting("k", 5, await guard(store)))
        assert await total(store, "a") == 5

    async def test_sets_and_increments_at_once_all_count(self, store: Store) -> None:
        adds = [commit(ShardAdd("a", number % 3, 1, 3)) for number in range(20)]
        sets = [setting(f"k{number}", 100, Guard()) for number in range(4)]
        outcomes = await asyncio.gather(*map(store.apply, [*adds, *sets]), return_exceptions=True)
        assert sum(isinstance(one, int) for one in outcomes) == 21
        assert await total(store, "a") == 120

    async def test_a_refused_commit_leaves_the_guard(self, store: Store) -> None:
        with pytest.raises(RefusedError):
            await store.apply(setting("k", 2**63, Guard(), deleted=True))
        assert await guard(store) == Guard()

    async def test_large_sums_are_guarded_too(self, store: Store) -> None:
        await store.apply(setting("k0", 2**55, Guard()))
        with pytest.raises(ChangedError):
            await store.apply(setting("k1", -(2**55), Guard()))
        await store.apply(setting("k2", -(2**55), await guard(store)))
        assert await total(store, "a") == 0
