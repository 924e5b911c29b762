"""The contract of a store that keeps counts by time: they are as exact as the totals in the same commit."""

from dataclasses import replace

import pytest

from shared.model.buckets import (
    DAY,
    HOUR,
    BucketAdd,
    ByTime,
    Counts,
    Millis,
    Rule,
    Rules,
    StoreMillis,
    TimeBucket,
    since_of,
)
from shared.model.errors import AlreadyAppliedError, ShardFullError
from shared.model.words import SHARD_FULL, Commit, Receipt
from shared.ports.store import Store
from tests.contracts.store import LATER, commit

KEPT: Rules = (Rule("a", (("day", Millis(DAY)), ("hour", Millis(DAY)))),)
MORE: Rules = (*KEPT, Rule("b", (("hour", Millis(DAY)),)))


def adding(
    *adds: tuple[int, int], counter: str = "a", by: str = "hour", shard: int = 0, expires: int = LATER, key: str = ""
) -> Commit:
    """Adds of (hour, delta)."""
    buckets = [
        BucketAdd(TimeBucket(counter, by, hour * HOUR), shard, delta, StoreMillis(expires)) for hour, delta in adds
    ]
    total = commit((counter, sum(delta for _, delta in adds)), keys=(key,) if key else ())
    return replace(total, by_time=ByTime(tuple(buckets), KEPT))


async def read(store: Store, counter: str = "a", by: str = "hour", begin: int = 0, end: int = 100) -> Counts:
    async with store.snapshot() as snapshot:
        return await snapshot.counts(counter, by, begin * HOUR, end * HOUR)


async def hours(store: Store, counter: str = "a", by: str = "hour", begin: int = 0, end: int = 100) -> dict[int, int]:
    found = (await read(store, counter, by, begin, end)).buckets
    return {when // HOUR: count for when, count in found.items() if count}


async def since(store: Store, rules: Rules, counter: str = "a") -> int:
    return since_of((await read(store)).followed, rules, counter, "hour")


class ByTimeContract:
    """Inherit it beside `StoreContract`."""

    async def test_sums_add_up_in_their_buckets_over_shards(self, store: Store) -> None:
        assert await hours(store) == {}
        await store.apply(adding((1, 5), (2, 7)))
        await store.apply(adding((1, -2), shard=3))
        await store.apply(adding((1, 100), counter="b"))
        await store.apply(adding((0, 1_000), by="day"))
        assert await hours(store) == {1: 3, 2: 7}
        assert await hours(store, "b") == {1: 100}
        assert await hours(store, by="day") == {0: 1_000}

    async def test_a_range_is_half_open(self, store: Store) -> None:
        await store.apply(adding((1, 1), (2, 10), (3, 100)))
        assert await hours(store, begin=1, end=3) == {1: 1, 2: 10}
        assert await hours(store, begin=2, end=2) == {}

    async def test_a_commit_that_is_refused_adds_to_no_bucket(self, store: Store) -> None:
        await store.apply(adding((1, 1), key="k"))
        with pytest.raises(AlreadyAppliedError):
            await store.apply(adding((1, 1), (2, 1), key="k"))
        assert await hours(store) == {1: 1}

    async def test_a_snapshot_has_the_buckets_of_its_instant(self, store: Store) -> None:
        await store.apply(adding((1, 1)))
        async with store.snapshot() as snapshot:
            await store.apply(adding((1, 1), (2, 1)))
            totals, _ = await snapshot.read(["a"], ())
            found = (await snapshot.counts("a", "hour", 0, DAY)).buckets
            assert totals["a"].value == sum(found.values()) == 1

    async def test_a_full_bucket_refuses_the_commit_and_another_shard_takes_it(self, store: Store) -> None:
        await store.apply(adding((1, SHARD_FULL), (2, -SHARD_FULL)))
        await store.apply(adding((1, 1), (2, -1)))
        with pytest.raises(ShardFullError) as full:
            await store.apply(adding((1, 1), (2, -1)))
        assert set(full.value.shards) == {("a", 0)}
        await store.apply(adding((1, 1), (2, -1), shard=1))
        assert await hours(store) == {1: SHARD_FULL + 2, 2: -SHARD_FULL - 2}

    async def test_a_compaction_hides_no_bucket(self, store: Store) -> None:
        await store.raise_shards("a", 4)
        for shard in range(4):
            await store.apply(adding((1, 10**shard), shard=shard))
        assert await store.compact("a", 1, Receipt("compaction", LATER, note=b"{}")) == 1
        assert await hours(store) == {1: 1_111}

    async def test_a_sweep_takes_what_has_expired_and_an_add_renews_it(self, store: Store) -> None:
        now = await store.now()
        far, year = 20_000, 366 * DAY  # a store may keep buckets with others that are less than a year apart
        await store.apply(adding((1, 1), (far, 10), expires=now + 1_000))
        await store.apply(adding((far, 10), expires=now + 1_001 + year))
        assert await store.sweep(StoreMillis(now + 1_000), 100) == 0
        assert await hours(store, end=far + 1) == {1: 1, far: 20}
        assert await store.sweep(StoreMillis(now + 1_001 + year), 100) == 1
        assert await hours(store, end=far + 1) == {far: 20}
        assert await store.sweep(StoreMillis(now + 1_002 + 2 * year), 0) == 0
        assert await store.sweep(StoreMillis(now + 1_002 + 2 * year), 100) == 1
        assert await hours(store, end=far + 1) == {}

    async def test_a_late_increment_shortens_no_other_life(self, store: Store) -> None:
        now, days = await store.now(), 24
        await store.apply(adding((300 * days, 1), by="day", expires=now + 300 * DAY))
        await store.apply(adding((10 * days, 1), by="day", expires=now + 10 * DAY))
        await store.sweep(StoreMillis(now + 300 * DAY - 1), 100)
        assert (await hours(store, by="day", end=366 * days))[300 * days] == 1

    async def test_what_is_no_flush_adds_nothing_and_changes_no_rule(self, store: Store) -> None:
        await store.apply(adding((1, 1)))
        followed = (await read(store)).followed
        await store.apply(commit(("a", 1)))
        assert await hours(store) == {1: 1}
        assert (await read(store)).followed == followed

    async def test_all_is_whole_where_nothing_was_counted_before(self, store: Store) -> None:
        assert await since(store, KEPT) == 0
        await store.apply(adding((1, 1)))
        assert await since(store, KEPT) == 0
        assert await since(store, MORE, "b") > await store.now()

    async def test_after_a_commit_of_other_rules_what_is_whole_begins_anew(self, store: Store) -> None:
        await store.apply(adding((1, 1)))
        await store.apply(replace(commit(("a", 1)), by_time=ByTime()))
        assert await since(store, KEPT) > await store.now()
        await store.apply(adding((1, 1)))
        kept = await since(store, KEPT)
        assert kept > 0
        await store.apply(replace(adding((1, 1)), by_time=ByTime((), MORE)))
        assert await since(store, KEPT) == kept
        assert await since(store, MORE, "b") >= kept

    async def test_nothing_is_added_to_a_period_that_is_closed(self, store: Store) -> None:
        await store.apply(adding((1, 1), (3, 100)))
        await store.close_periods(3 * HOUR)
        assert (await read(store)).closed == 3 * HOUR
        await store.apply(adding((0, 20), (1, 30), (2, 50), (3, 1_000), (4, 1)))
        assert await hours(store) == {1: 1, 3: 1_200, 4: 1}
        await store.apply(adding((0, 7), by="day"))
        assert await hours(store, by="day") == {0: 7}, "the day is not over"

    async def test_what_is_closed_stays_closed(self, store: Store) -> None:
        await store.close_periods(3 * HOUR)
        await store.close_periods(2 * HOUR)
        assert (await read(store)).closed == 3 * HOUR
        await store.close_periods(5 * HOUR)
        await store.apply(adding((3, 1)))
        assert await hours(store) == {5: 1}

    async def test_a_snapshot_of_before_does_not_know_what_is_closed(self, store: Store) -> None:
        async with store.snapshot() as snapshot:
            await store.close_periods(2 * HOUR)
            found = await snapshot.counts("a", "hour", 0, DAY)
            assert found.closed == 0

    async def test_an_increment_that_is_late_lives_as_long_as_others_of_its_period(self, store: Store) -> None:
        now = await store.now()
        await store.close_periods(48 * HOUR)
        await store.apply(adding((1, 1), by="day", expires=now + 1_000))
        await store.sweep(StoreMillis(now + DAY), 100)
        assert await hours(store, by="day") == {48: 1}

    async def test_nothing_is_dated_far_in_the_future(self, store: Store) -> None:
        async with store.snapshot() as snapshot:
            now = int(snapshot.as_of * 1_000)
        far = now // HOUR + 30 * 24
        await store.apply(adding((far, 5)))
        found = await hours(store, end=far + 1)
        assert [*found.values()] == [5]
        assert now // HOUR <= min(found) <= now // HOUR + 1
