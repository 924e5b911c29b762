"""The contract of a store's marks: of those who saw one number, one adds the difference."""

import asyncio
from dataclasses import replace

import pytest

from shared.model.errors import AlreadyAppliedError, ChangedError, RefusedError, ShardFullError
from shared.model.words import MAX_SUM, Commit, Guard, Mark, Receipt, ShardAdd
from shared.ports.store import Store
from tests.contracts.guards import CONFLICTS, guard, setting
from tests.contracts.removals import delete
from tests.contracts.store import LATER, commit, total


def adding(key: str, *marks: Mark, times: int = 1) -> Commit:
    adds = tuple(ShardAdd(mark.counter, 0, times * (mark.total - mark.seen), 1) for mark in marks)
    return Commit((Receipt(key, LATER),), adds, marks=marks)


class MarkContract:
    """Inherit it beside `RemovalContract`."""

    async def test_what_was_never_added_to_has_no_mark(self, store: Store) -> None:
        await store.apply(commit(("a", 5)))
        await store.apply(setting("set", 1, await guard(store)))
        assert await store.marks("there", ["a", "b"]) == {}
        assert await store.marks("there", []) == {}

    async def test_a_mark_is_the_sum_of_what_was_added(self, store: Store) -> None:
        seen = 0
        for number, now in enumerate((7, 3, 0, 2**61, -5, 2**62)):
            await store.apply(adding(f"k{number}", Mark("there", "a", seen, now)))
            assert {"a": 0} | {**await store.marks("there", ["b", "a"])} == {"a": now}
            assert await total(store, "a") == now
            seen = now

    async def test_a_mark_may_be_beyond_64_bits(self, store: Store) -> None:
        seen = 0
        for shard, now in enumerate((2**61, -(2**66), 2**64, 2**63, 2**63 - 1, 5)):
            move = Commit((Receipt(f"k{shard}", LATER),), marks=(Mark("there", "a", seen, now),), adds=())
            with pytest.raises(ChangedError):
                await store.apply(replace(move, marks=(Mark("there", "a", seen + 1, now),)))
            await store.apply(move)
            assert await store.marks("there", ["a"]) == {"a": now}
            seen = now

    async def test_who_saw_another_number_applies_nothing(self, store: Store) -> None:
        await store.apply(adding("first", Mark("there", "a", 0, 5)))
        for number, seen in enumerate((0, 4, -5)):
            late = adding(f"late{number}", Mark("there", "b", 0, 100), Mark("there", "a", seen, 100))
            with pytest.raises(ChangedError):
                await store.apply(late)
        with pytest.raises(ChangedError):
            await store.apply(adding("never", Mark("there", "c", 1, 100)))
        assert [await total(store, name) for name in "abc"] == [5, 0, 0]
        assert await store.marks("there", ["a", "b", "c"]) == {"a": 5}
        assert set((await store.receipts(["first", "late0", "late1", "late2", "never"])).found) == {"first"}
        assert await store.shards(["a", "b", "c"]) == {"a": 1}

    async def test_each_source_has_marks_of_its_own(self, store: Store) -> None:
        sources = ["there", "there ", "There", "thereb", "s" * 1_500, "\N{SNOWMAN}/?=&"]
        names = ["a", "A", "ba", "n" * 400, "\N{SNOWMAN}"]
        for number, source in enumerate(sources):
            marks = [Mark(source, name, 0, 100 * number + at + 1) for at, name in enumerate(names)]
            await store.apply(adding(f"k{number}", *marks))
        for number, source in enumerate(sources):
            assert await store.marks(source, names) == {name: 100 * number + at + 1 for at, name in enumerate(names)}
        assert await total(store, "a") == sum(100 * number + 1 for number in range(len(sources)))

    async def test_of_additions_at_once_one_is_applied(self, store: Store) -> None:
        seen = 0
        for round_ in range(3):
            commits = [adding(f"k{round_}-{number}", Mark("there", "a", seen, seen + 4**number)) for number in range(8)]
            outcomes = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
            assert sorted(type(one).__name__ for one in outcomes) == ["ChangedError"] * 7 + ["int"]
            (winner,) = [number for number, one in enumerate(outcomes) if isinstance(one, int)]
            seen += 4**winner
            assert await total(store, "a") == seen
            assert await store.marks("there", ["a"]) == {"a": seen}

    async def test_one_addition_twice_is_applied_once(self, store: Store) -> None:
        same = adding("k", Mark("there", "a", 0, 5), Mark("there", "b", 0, 6))
        outcomes = await asyncio.gather(*(store.apply(same) for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(one, int) for one in outcomes) == 1
        assert sum(isinstance(one, CONFLICTS) for one in outcomes) == 5
        with pytest.raises(AlreadyAppliedError):
            await store.apply(adding("k", Mark("there", "a", 5, 7)))
        assert (await total(store, "a"), await total(store, "b")) == (5, 6)

    async def test_many_marks_in_one_commit(self, store: Store) -> None:
        names = [f"counter-{number}" for number in range(100)]
        await store.apply(adding("first", *(Mark("there", name, 0, 2) for name in names[:50])))
        await store.apply(adding("then", *(Mark("there", name, 2 * (at < 50), 3) for at, name in enumerate(names))))
        assert await store.marks("there", [*names, "other"]) == dict.fromkeys(names, 3)
        assert [await total(store, names[at]) for at in (0, 99)] == [3, 3]

    async def test_increments_and_additions_at_once_all_count(self, store: Store) -> None:
        adds = [commit(ShardAdd("a", number % 3, 1, 3)) for number in range(20)]
        imports = [adding(f"{source}", Mark(source, "a", 0, 100)) for source in "xyz"]
        outcomes = await asyncio.gather(*map(store.apply, [*adds, *imports]), return_exceptions=True)
        assert all(isinstance(one, int) for one in outcomes), outcomes
        assert await total(store, "a") == 320

    async def test_a_set_and_an_addition_do_not_disturb_each_other(self, store: Store) -> None:
        for number in range(3):
            seen = await guard(store)
            await store.apply(adding(f"add{number}", Mark("there", "a", 10 * number, 10 * number + 10)))
            await store.apply(setting(f"set{number}", 1, seen))
        assert await total(store, "a") == 33
        assert await store.marks("there", ["a"]) == {"a": 30}

    async def test_neither_a_delete_nor_a_removal_forgets_a_mark(self, store: Store) -> None:
        """What was added once must not be added again to what comes back."""
        await store.apply(adding("first", Mark("there", "a", 0, 5)))
        await delete(store)
        assert await store.marks("there", ["a"]) == {"a": 5}
        assert await store.remove("a")
        assert await store.marks("there", ["a"]) == {"a": 5}
        with pytest.raises(ChangedError):
            await store.apply(adding("again", Mark("there", "a", 0, 5)))
        await store.apply(adding("more", Mark("there", "a", 5, 7)))
        assert await total(store, "a") == 2
        assert await store.shards(["a"]) == {"a": 1}

    async def test_what_is_refused_moves_no_mark(self, store: Store) -> None:
        with pytest.raises(RefusedError):
            await store.apply(adding("k", Mark("there", "b", 0, 1), Mark("there", "a", 0, 2**62), times=4))
        for _ in range(2):
            await store.apply(commit(("full", MAX_SUM)))
        with pytest.raises(ShardFullError):
            await store.apply(adding("k", Mark("there", "full", 0, MAX_SUM)))
        assert await store.marks("there", ["a", "b", "full"]) == {}

    async def test_the_time_of_each_change_is_that_of_its_commit(self, store: Store) -> None:
        await store.apply(commit(keys=("revived",), state="dead"))
        for key, change, there in (
            ("revived", Commit((), (ShardAdd("a", 0, 1, 1),), (Receipt("revived", LATER),)), 2),
            ("set", setting("set", 0, Guard()), 3),
            ("added", adding("added", Mark("there", "a", 0, 5)), 9),
        ):
            before = await store.apply(commit(("a", 1)))
            time = await store.apply(change)
            assert time > before, key
            async with store.snapshot() as snapshot:
                totals, applied = await snapshot.read(["a"], [key])
            assert snapshot.time >= time, key
            assert (totals["a"].value, {*applied}) == (there, {key})
            assert bool(totals["a"].guard.version) == (key != "revived")
