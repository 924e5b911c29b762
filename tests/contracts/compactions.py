"""The contract of compactions: what the highest shards hold is kept, and nothing that comes meanwhile is lost."""

import asyncio
import contextlib
from itertools import count

import pytest

from shared.counters.setter import Compactor
from shared.model.buckets import DAY
from shared.model.errors import AlreadyAppliedError, ContendedError, CrowdedError, ShrunkError
from shared.model.words import SHARD_FULL, Commit, Receipt, ShardAdd
from shared.ports.store import Store
from tests.contracts.audit_data import data
from tests.contracts.guards import guard, setting
from tests.contracts.removals import delete
from tests.contracts.store import LATER, commit, total
from tests.world.manual_clock import ManualClock

_KEYS = count()


def receipt() -> Receipt:
    return Receipt(f"compaction{next(_KEYS)}", LATER, note=b"{}")


async def shrink(store: Store, number: int, counter: str = "a") -> int:
    return await store.compact(counter, number, receipt())


async def spread(store: Store, *counts: int, counter: str = "a") -> None:
    """So many in each of its shards."""
    adds = [ShardAdd(counter, shard, held, len(counts)) for shard, held in enumerate(counts)]
    await store.apply(commit(*adds))


class Believer:
    """Adds as a flusher does that asks for the number of shards only when it is told so."""

    def __init__(self, store: Store, known: int) -> None:
        self._store = store
        self._known = known

    async def add(self, pick: int, delta: int) -> None:
        one = commit(ShardAdd("a", 0, delta, 1))
        while True:
            shard = pick % self._known
            add = ShardAdd("a", shard, delta, self._known, self._known)
            try:
                await self._store.apply(Commit(one.receipts, (add,)))
            except ShrunkError:
                self._known = (await self._store.shards(["a"]))["a"]
            except ContendedError:
                await asyncio.sleep(0)
            except AlreadyAppliedError:
                return
            else:
                return


class CompactionContract:
    """Inherit it beside `RemovalContract`."""

    async def test_all_is_kept_and_the_number_is_lower(self, store: Store) -> None:
        await spread(store, 1, 20, 300, 4_000, 50_000)
        await spread(store, 7, 7, counter="b")
        assert await shrink(store, 2) == 2
        assert await store.shards(["a", "b"]) == {"a": 2, "b": 2}
        assert await total(store, "a") == 54_321
        assert await total(store, "b") == 14
        assert await shrink(store, 1) == 1
        assert await total(store, "a") == 54_321
        _, configs, shards = await data(store)
        assert {(one.counter, one.number) for one in shards} == {("a", 0), ("b", 0), ("b", 1)}
        assert {(one.counter, one.num_shards) for one in configs if one.num_shards} == {("a", 1), ("b", 2)}

    async def test_shards_that_never_were_do_not_matter(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 7, 5, 12)))
        assert await shrink(store, 3) == 3
        assert await total(store, "a") == 5
        await store.raise_shards("b", 9)
        assert await shrink(store, 1, "b") == 1
        assert await total(store, "b") == 0

    async def test_negative_sums_and_those_that_cancel_out(self, store: Store) -> None:
        await spread(store, 10, -7, 4, -4)
        assert await shrink(store, 2) == 2
        assert await total(store, "a") == 3
        assert await shrink(store, 1) == 1
        assert await total(store, "a") == 3

    async def test_it_only_lowers(self, store: Store) -> None:
        await spread(store, 1, 2, 3)
        assert await shrink(store, 3) == 3
        assert await shrink(store, 8) == 3
        assert await shrink(store, 4, "never") == 0
        assert await store.shards(["a", "never"]) == {"a": 3}
        assert await total(store, "a") == 6

    async def test_it_leaves_its_receipt_if_it_did_anything_and_is_done_once(self, store: Store) -> None:
        await spread(store, 1, 2, 3)
        one, nothing = receipt(), receipt()
        await store.compact("a", 3, nothing)
        await store.compact("a", 2, one)
        assert (await store.receipts([one.key, nothing.key])).found == {one.key: one}
        await store.raise_shards("a", 5)
        with pytest.raises(AlreadyAppliedError):
            await store.compact("a", 1, one)
        assert await store.shards(["a"]) == {"a": 5}

    async def test_what_is_written_last_is_known_by_the_receipt(self, store: Store) -> None:
        """As an audit wants it: or it would say that somebody else wrote to the shards."""
        await spread(store, 1, 2, 3)
        one = receipt()
        await store.compact("a", 1, one)
        receipts, _, shards = await data(store)
        (time,) = [kept.time for kept in receipts if kept.receipt.key == one.key]
        assert {shard.written for shard in shards} <= {0, time}

    async def test_who_believes_in_more_shards_is_told_so(self, store: Store) -> None:
        await spread(store, 1, 2, 3, 4)
        await shrink(store, 2)
        one = commit(ShardAdd("a", 3, 5, 4, 4), ("b", 5))
        with pytest.raises(ShrunkError) as caught:
            await store.apply(one)
        assert {*caught.value.counters} == {"a"}
        assert (await store.receipts([one.receipts[0].key])).found == {}
        assert await total(store, "b") == 0
        await store.apply(commit(ShardAdd("a", 1, 5, 4, 4)))
        assert await store.shards(["a"]) == {"a": 2}
        assert await total(store, "a") == 15

    async def test_a_shard_that_never_was_does_not_bring_the_others_back(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 0, 1, 9)))
        await shrink(store, 4)
        await store.apply(commit(ShardAdd("a", 2, 5, 9, 9)))
        assert await store.shards(["a"]) == {"a": 4}
        assert await total(store, "a") == 6

    async def test_who_looked_for_a_shard_before_it_went_is_told_so(self, store: Store) -> None:
        first = commit(ShardAdd("a", 0, 1, 1))
        await store.apply(first)
        await store.raise_shards("a", 10)
        with pytest.raises(AlreadyAppliedError):
            await store.apply(Commit(first.receipts, (ShardAdd("a", 5, 1, 10, 10),)))
        await shrink(store, 1)
        with pytest.raises(ShrunkError):
            await store.apply(commit(ShardAdd("a", 5, 1, 10, 10)))
        assert await store.shards(["a"]) == {"a": 1}

    async def test_who_wants_one_more_gets_it(self, store: Store) -> None:
        await spread(store, 1, 2, 3)
        await shrink(store, 1)
        await store.apply(commit(ShardAdd("a", 1, 5, 2, 1)))
        assert await store.shards(["a"]) == {"a": 2}
        assert await total(store, "a") == 11
        await store.raise_shards("a", 6)
        await store.apply(commit(ShardAdd("a", 5, 5, 6, 6)))
        assert await total(store, "a") == 16

    async def test_a_counter_that_was_removed_is_made_anew(self, store: Store) -> None:
        await spread(store, 1, 2, 3, 4)
        await shrink(store, 2)
        await delete(store)
        assert await store.remove("a")
        await store.apply(commit(ShardAdd("a", 3, 5, 4, 4)))
        assert await total(store, "a") == 5
        assert await store.shards(["a"]) == {"a": 4}

    async def test_a_set_counts_before_and_after(self, store: Store) -> None:
        await spread(store, 1, 2, 3)
        before = await guard(store)
        await shrink(store, 1)
        assert await guard(store) == before
        await store.apply(setting("k", 94, before))
        assert await total(store, "a") == 100

    async def test_what_does_not_fit_is_left(self, store: Store) -> None:
        await spread(store, SHARD_FULL, 5, 7)
        with pytest.raises(CrowdedError):
            await shrink(store, 1)
        assert await store.shards(["a"]) == {"a": 3}
        assert await shrink(store, 2) == 2
        assert await total(store, "a") == SHARD_FULL + 12

    async def test_large_sums_are_divided_among_those_that_stay(self, store: Store) -> None:
        half = SHARD_FULL // 2
        await spread(store, half + 1, half, half, half)
        assert await shrink(store, 3) == 3
        assert await shrink(store, 2) == 2
        assert await total(store, "a") == 4 * half + 1
        _, _, shards = await data(store)
        assert all(abs(shard.held) <= SHARD_FULL for shard in shards)

    async def test_what_moves_may_be_beyond_int64_where_the_sum_fits(self, store: Store) -> None:
        """A shard that is far below zero has room for more than one integer can say."""
        await spread(store, -SHARD_FULL - 9, SHARD_FULL, SHARD_FULL, 5)
        assert await shrink(store, 1) == 1
        assert await total(store, "a") == SHARD_FULL - 4
        await spread(store, SHARD_FULL + 9, -SHARD_FULL, -SHARD_FULL, -5, counter="b")
        assert await shrink(store, 1, "b") == 1
        assert await total(store, "b") == 4 - SHARD_FULL

    async def test_a_snapshot_is_of_before_or_after(self, store: Store) -> None:
        await spread(store, 1, 2, 3)
        async with store.snapshot() as snapshot:
            await shrink(store, 1)
            totals, _ = await snapshot.read(["a"], ())
        assert totals["a"].value == 6
        assert await total(store, "a") == 6

    async def test_nothing_that_comes_beside_compactions_is_lost(self, store: Store) -> None:
        """Two compact, one raises, some add who believe what they knew."""
        await spread(store, *[0] * 5)
        adding = asyncio.Event()

        async def shrinks() -> int:
            done = 0
            while not adding.is_set():
                with contextlib.suppress(ContendedError):
                    done += await shrink(store, 1) == 1
                await asyncio.sleep(0)
            return done

        async def raises() -> None:
            while not adding.is_set():
                await store.raise_shards("a", 5)
                await asyncio.sleep(0.001)

        async def adds(first: int) -> None:
            believer = Believer(store, 5)
            for number in range(first, first + 8):
                await believer.add(number * 3, 4**number)
                await asyncio.sleep(0)

        others = [asyncio.create_task(one) for one in (shrinks(), shrinks(), raises())]
        await asyncio.gather(*(adds(first) for first in (0, 8, 16)))
        adding.set()
        await asyncio.gather(*others)
        assert await total(store, "a") == sum(4**number for number in range(24))
        assert await Compactor(store, ManualClock(), DAY).compact("a", 1) == 1
        assert await total(store, "a") == sum(4**number for number in range(24))

    async def test_counters_of_more_shards_are_found(self, store: Store) -> None:
        for name, number in (("a", 1), ("b", 2), ("c", 5), ("d", 3), ("\N{SNOWMAN}", 9)):
            await store.raise_shards(name, number)
        found = [name async for page in store.grown(2) for name in page]
        assert sorted(found) == ["c", "d", "\N{SNOWMAN}"]
        assert [page async for page in store.grown(9)] in ([], [[]])

    async def test_a_counter_is_raised_only_if_it_is_there_unless_it_is_to_be_made(self, store: Store) -> None:
        assert await store.raise_shards("a", 4, make=False) == 0
        assert await store.shards(["a"]) == {}
        await store.apply(commit(("a", 1)))
        assert await store.raise_shards("a", 4, make=False) == 4
        assert await store.raise_shards("a", 2, make=False) == 4
        assert await store.shards(["a"]) == {"a": 4}

    async def test_shards_that_were_written_are_young_where_their_age_is_known(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 0, 1, 3), ShardAdd("a", 2, 1, 3), ("b", 1)))
        asked = [("a", 0), ("a", 1), ("a", 2), ("c", 0)]
        ages = await store.ages(asked)
        assert not ages or {*ages} == {("a", 0), ("a", 2)}
        assert all(-1 < age < 10 for age in ages.values())

    async def test_what_a_compaction_gives_to_a_shard_is_a_write(self, store: Store) -> None:
        await store.apply(commit(ShardAdd("a", 7, 5, 12)))
        await shrink(store, 3)
        ages = await store.ages([("a", 0), ("a", 7)])
        assert not ages or {*ages} == {("a", 0)}
        assert all(-1 < age < 10 for age in ages.values())
