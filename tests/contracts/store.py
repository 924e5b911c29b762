"""The contract of Store."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest

from shared.model.buckets import StoreMillis
from shared.model.errors import AlreadyAppliedError, RefusedError, ShardFullError
from shared.model.words import MAX_SUM, SHARD_FULL, Commit, Guard, Receipt, ShardAdd, Total
from shared.ports.store import Store

LATER = StoreMillis(2**41)
_KEYS = count()


def commit(*adds: tuple[str, int] | ShardAdd, keys: tuple[str, ...] = (), state: str = "applied") -> Commit:
    """Adds to shard 0 where nothing else is said; a receipt of its own where none is named."""
    return Commit(
        tuple(Receipt(key, LATER, state) for key in keys or (f"key{next(_KEYS)}",)),
        tuple(add if isinstance(add, ShardAdd) else ShardAdd(add[0], 0, add[1], 1) for add in adds),
    )


async def snapshot_of(
    store: Store, counters: Sequence[str], keys: Collection[str] = ()
) -> tuple[Mapping[str, Total], Collection[str]]:
    async with store.snapshot() as snapshot:
        return await snapshot.read(counters, keys)


async def total(store: Store, counter: str) -> int:
    return (await snapshot_of(store, [counter]))[0][counter].value


class ShardContract:
    """What depends on what a process remembers of shards. Inherit it and say what `store` is: an empty one."""

    async def test_sums_add_up_over_shards(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 0, 5, 1), ("b", -7)))
        await store.apply(commit(ShardAdd("a", 2, 10, 3)))
        await store.apply(commit(ShardAdd("a", 0, -1, 1)))
        assert await total(store, "a") == 14
        assert await total(store, "b") == -7

    async def test_an_existing_receipt_refuses_the_whole_commit(self, store: Store) -> None:
        await store.apply(commit(("a", 1), keys=("k1",)))
        with pytest.raises(AlreadyAppliedError):
            await store.apply(commit(("a", 1), ("b", 1), keys=("k0", "k1", "k2")))
        assert await total(store, "a") == 1
        assert await total(store, "b") == 0
        assert set((await store.receipts(["k0", "k1", "k2"])).found) == {"k1"}
        assert await store.shards(["b"]) == {}

    async def test_of_equal_commits_at_once_one_is_applied(self, store: Store) -> None:
        same = commit(("a", 1), keys=("k",))
        outcomes = await asyncio.gather(*(store.apply(same) for _ in range(16)), return_exceptions=True)
        assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, AlreadyAppliedError) for outcome in outcomes) == 15
        assert await total(store, "a") == 1

    async def test_concurrent_commits_to_one_shard_all_count(self, store: Store) -> None:
        await asyncio.gather(*(store.apply(commit(("a", number), ("b", 1))) for number in range(50)))
        assert await total(store, "a") == sum(range(50))
        assert await total(store, "b") == 50

    async def test_what_was_removed_is_not_counted(self, store: Store) -> None:
        await store.apply(commit(("a1", 0), ("a2", 0)))
        await store.apply(replace(commit(), guard=("a1", Guard(deleted=True))))
        assert await store.count("a", 10) == 2
        assert await store.remove("a1")
        assert await store.count("a", 10) == 1

    async def test_a_refused_commit_revives_nothing(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        with pytest.raises(RefusedError):
            await store.apply(Commit((), (ShardAdd("b", 0, 2**63, 1),), (Receipt("k", StoreMillis(LATER + 1)),)))
        for _ in range(2):
            await store.apply(commit(("full", MAX_SUM)))
        with pytest.raises(ShardFullError):
            await store.apply(Commit((), (ShardAdd("full", 0, MAX_SUM, 1),), (Receipt("k", StoreMillis(LATER + 1)),)))
        assert (await store.receipts(["k"])).found == {"k": Receipt("k", LATER, "dead")}

    async def test_time_goes_on_with_each_commit(self, store: Store) -> None:
        times = [await store.apply(commit(("a", 1))) for _ in range(5)]
        assert times == sorted(times)
        async with store.snapshot() as snapshot:
            assert snapshot.time >= times[-1]
        assert (await store.receipts(["none"])).time >= times[-1]

    async def test_num_shards_is_raised_with_the_shard_and_never_lowered(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 4, 1, 5)))
        await store.apply(commit(ShardAdd("a", 1, 1, 2)))
        assert await store.shards(["a", "b"]) == {"a": 5}
        assert await store.raise_shards("a", 3) == 5
        assert await store.raise_shards("a", 8) == 8
        assert await store.raise_shards("b", 2) == 2
        assert await store.shards(["a", "b"]) == {"a": 8, "b": 2}
        assert await total(store, "a") == 2

    async def test_concurrent_raises_keep_the_greatest(self, store: Store) -> None:
        await asyncio.gather(*(store.raise_shards("a", number) for number in (3, 9, 1, 7, 5)))
        assert await store.shards(["a"]) == {"a": 9}

    async def test_a_large_commit_and_a_large_read(self, store: Store) -> None:
        names = [f"counter-{number}" for number in range(1_200)]
        keys = tuple(f"receipt-{number}" for number in range(1_200))
        await store.apply(commit(*((name, 2) for name in names), keys=keys))
        totals, applied = await snapshot_of(store, names, [*keys, "none"])
        assert all(totals[name].value == 2 for name in names)
        assert set(applied) == set(keys)
        assert len((await store.receipts(keys)).found) == 1_200

    async def test_a_full_shard_refuses_the_whole_commit(self, store: Store) -> None:
        for sign, counter in ((1, "up"), (-1, "down")):
            for _ in range(2):
                await store.apply(commit((counter, sign * MAX_SUM)))
            assert abs(await total(store, counter)) > SHARD_FULL
            with pytest.raises(ShardFullError) as full:
                await store.apply(commit((counter, sign), ("other", 1), keys=(f"{counter}-key",)))
            assert set(full.value.shards) == {(counter, 0)}
            assert not (await store.receipts([f"{counter}-key"])).found
            await store.apply(commit(ShardAdd(counter, 1, sign * MAX_SUM, 2)))
            await store.apply(commit(ShardAdd(counter, 1, sign * MAX_SUM, 2)))
            assert await total(store, counter) == sign * 4 * MAX_SUM
        assert await total(store, "other") == 0

    async def test_a_shard_is_full_beyond_a_line_and_up_to_it_takes_the_largest_sum(self, store: Store) -> None:
        for sign, counter in ((1, "up"), (-1, "down")):
            await store.apply(commit((counter, sign * SHARD_FULL)))
            await store.apply(commit((counter, sign * 2 * MAX_SUM)))
            assert await total(store, counter) == sign * (SHARD_FULL + 2 * MAX_SUM)
            with pytest.raises(ShardFullError):
                await store.apply(commit((counter, 0)))

    async def test_what_it_can_never_take_is_refused_whole(self, store: Store) -> None:
        for beyond in (2**63, -(2**63) - 1):
            with pytest.raises(RefusedError):
                await store.apply(commit(("b", 1), ("a", beyond), keys=("k",)))
        assert await total(store, "b") == 0
        assert await store.shards(["a", "b"]) == {}
        assert not (await store.receipts(["k"])).found


class StoreContract(ShardContract):
    """Inherit it and say what `store` is: an empty one."""

    async def test_a_counter_never_seen_is_zero_without_a_config(self, store: Store) -> None:
        totals, applied = await snapshot_of(store, ["a"], ["key"])
        assert (totals["a"].value, totals["a"].shards) == (0, 0)
        assert not applied
        assert await store.shards(["a"]) == {}

    async def test_a_receipt_keeps_its_first_state(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        with pytest.raises(AlreadyAppliedError):
            await store.apply(commit(("a", 1), keys=("k",)))
        with pytest.raises(AlreadyAppliedError):
            await store.apply(commit(keys=("k",), state="dead"))
        assert (await store.receipts(["k"])).found == {"k": Receipt("k", LATER, "dead")}

    async def test_only_applied_receipts_count_as_applied(self, store: Store) -> None:
        await store.apply(commit(keys=("dead",), state="dead"))
        await store.apply(commit(("a", 1), keys=("live",)))
        _, applied = await snapshot_of(store, ["a"], ["dead", "live", "none"])
        assert set(applied) == {"live"}

    async def test_receipts_are_found_by_what_their_keys_start_with(self, store: Store) -> None:
        keys = ["jx:61", "jx:61+", "jx:6162", "jx:62", "jx:c3a9"]
        await store.apply(commit(("a", 1), keys=(*reversed(keys), "jw:61", "jx-1:61", "jx;", "jy:61", "j")))
        noted = Receipt("jx:c3aa", LATER, note=b'{"v":["1","0"]}')
        await store.apply(Commit((noted,), ()))
        found = await store.receipts_from("jx:", "", 10)
        assert [one.key for one in found] == [*keys, noted.key]
        assert found[-1] == noted
        assert [one.key for one in await store.receipts_from("jx:", "jx:61", 3)] == keys[1:4]
        assert await store.receipts_from("jx:", noted.key, 3) == []

    async def test_counters_are_counted_that_begin_with_a_prefix(self, store: Store) -> None:
        """Those right before and behind a range are not in it, whatever their characters are."""
        last = chr(0x10FFFF)
        inside = ["a=", "a=\u00a0", "a=b", "a=\ue000", "a=\uffff", "a=\U00010000", f"a={last}", f"a={last * 99}"]
        others = ["A=", "a", "a<", f"a<{last}", "a>", "b", "\u00e9", "\ud7ff", "\uffff", f"\uffff{last}", "\U00010000"]
        for number, name in enumerate((*inside, *others)):
            await store.apply(commit((name, number % 2)))
        for prefix, number in (
            ("a=", len(inside)),
            (f"a={last}", 2),
            ("a=\U00010000", 1),
            ("a=\uffff", 1),
            ("\uffff", 2),
            ("a", len(inside) + 4),
            (f"a={last * 99}", 1),
            (f"a={last * 99}a", 0),
            ("a=c", 0),
            ("", len(inside) + len(others)),
        ):
            assert await store.count(prefix, 10_000) == number, prefix
            assert await store.count(prefix, number) == number
            assert await store.count(prefix, min(number, 2)) == min(number, 2)
        assert await store.count("none", 1) == await store.count("a", 0) == 0

    async def test_a_dead_receipt_is_revived_by_the_commit_that_applies_it(self, store: Store) -> None:
        await store.apply(commit(keys=("dead", "other"), state="dead"))
        await store.apply(
            Commit((Receipt("id", LATER),), (ShardAdd("a", 0, 5, 1),), (Receipt("dead", StoreMillis(LATER + 1)),))
        )
        assert await total(store, "a") == 5
        assert (await store.receipts(["dead", "id", "other"])).found == {
            "dead": Receipt("dead", StoreMillis(LATER + 1)),
            "id": Receipt("id", LATER),
            "other": Receipt("other", LATER, "dead"),
        }
        assert set((await snapshot_of(store, ["a"], ["dead", "id", "other"]))[1]) == {"dead", "id"}

    async def test_only_what_is_dead_is_revived_or_nothing_happens(self, store: Store) -> None:
        await store.apply(commit(keys=("dead",), state="dead"))
        await store.apply(commit(("a", 1), keys=("applied",)))
        for receipts, revived in (
            ((), ("dead", "applied")),
            ((), ("none", "dead")),
            ((), ("dead", "dead")),
            (("dead",), ()),
            (("applied",), ("dead",)),
            (("dead",), ("dead",)),
            (("new",), ("new",)),
        ):
            made, changed = (tuple(Receipt(key, LATER) for key in keys) for keys in (receipts, revived))
            with pytest.raises(AlreadyAppliedError):
                await store.apply(Commit(made, (ShardAdd("a", 0, 1, 1), ShardAdd("b", 0, 1, 1)), changed))
        found = (await store.receipts(["dead", "applied", "none", "new"])).found
        assert {key: receipt.state for key, receipt in found.items()} == {"dead": "dead", "applied": "applied"}
        assert await total(store, "a") == 1
        assert await store.shards(["b"]) == {}

    async def test_what_was_revived_is_never_revived_again(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        again = Commit((), (ShardAdd("a", 0, 1, 1),), (Receipt("k", LATER),))
        await store.apply(again)
        for other in (again, commit(("a", 1), keys=("k",)), commit(keys=("k",), state="dead")):
            with pytest.raises(AlreadyAppliedError):
                await store.apply(other)
        assert await total(store, "a") == 1
        assert (await store.receipts(["k"])).found["k"].state == "applied"

    async def test_of_those_who_revive_one_receipt_at_once_one_does(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        commits = [Commit((), (ShardAdd("a", n % 3, 1, 3),), (Receipt("k", LATER),)) for n in range(12)]
        commits += [Commit((), (), (Receipt("k", LATER, "dead"),)) for _ in range(4)]
        outcomes = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
        failed = [one for one in outcomes if not isinstance(one, int)]
        assert all(isinstance(one, AlreadyAppliedError) for one in failed), failed
        assert sum(isinstance(one, int) for one in outcomes[:12]) == 1
        assert await total(store, "a") == 1

    async def test_a_dead_receipt_is_made_to_live_longer_and_never_shorter(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state="dead"))
        for expires in (LATER + 5, LATER + 3):
            await store.apply(Commit((), (), (Receipt("k", StoreMillis(expires), "dead"),)))
            assert (await store.receipts(["k"])).found == {"k": Receipt("k", StoreMillis(LATER + 5), "dead")}
        await store.apply(Commit((), (), (Receipt("k", StoreMillis(LATER + 4)),)))
        assert (await store.receipts(["k"])).found == {"k": Receipt("k", StoreMillis(LATER + 5))}

    async def test_any_name_is_a_counter_of_its_own(self, store: Store) -> None:
        names = ["x", "X", "x ", "x-0", "shard-x-0", "é", "e\u0301", "'; --", "n" * 400, "n" * 399, "\N{SNOWMAN}"]
        for number, name in enumerate(names):
            await store.apply(commit((name, number + 1)))
        totals, _ = await snapshot_of(store, names)
        assert [totals[name].value for name in names] == list(range(1, len(names) + 1))

    async def test_a_sweep_deletes_receipts_that_have_expired_and_no_others(self, store: Store) -> None:
        old = Commit(tuple(Receipt(f"old{number}", StoreMillis(1_000)) for number in range(3)), ())
        await store.apply(old)
        await store.apply(commit(keys=("young",)))
        assert await store.sweep(StoreMillis(1_000), 10) == 0
        assert await store.sweep(StoreMillis(2_000), 2) == 2
        assert await store.sweep(StoreMillis(2_000), 10) == 1
        assert set((await store.receipts(["old0", "old1", "old2", "young"])).found) == {"young"}

    async def test_a_late_sweep_leaves_a_receipt_that_was_made_anew(self, store: Store) -> None:
        await store.apply(Commit((Receipt("again", StoreMillis(1_000)),), ()))
        assert await store.sweep(StoreMillis(2_000), 10) == 1
        await store.apply(Commit((Receipt("again", LATER),), ()))
        assert await store.sweep(StoreMillis(2_000), 10) == 0
        assert [*(await store.receipts(["again"])).found] == ["again"]
