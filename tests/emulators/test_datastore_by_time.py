"""Counts by time in Datastore: names, two processes, and what was there before."""

import asyncio
from dataclasses import replace

from flusher.flush.window import MOST_IN_COMMIT
from shared.counters.series import SeriesReader
from shared.datastore import buckets
from shared.datastore.client import LAG_EMULATED
from shared.datastore.keys import COUNT, KEY, query_of
from shared.model.buckets import FOR_EVER, HOUR, BucketAdd, ByTime, StoreMillis, TimeBucket
from shared.model.errors import ContendedError
from shared.runtime.retry import Backoff, insist, tries
from tests.contracts.by_time import KEPT, MORE, adding, hours, read, since
from tests.contracts.store import LATER, commit
from tests.emulators.datastore_fixtures import Datastore
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.series import ALL_KEPT, everything

NAMES = ("a", "a:", "a\ue000", "a😀", "ab", "b", "a\x7f", "É" * 500)


async def shown() -> None:
    """Emulators show a commit to all readers only a little later."""
    await asyncio.sleep(2 * LAG_EMULATED)


class TestByTime:
    async def test_no_counter_reads_the_buckets_of_another(self, datastore: Datastore) -> None:
        store = await datastore.store()
        for number, name in enumerate(NAMES):
            await store.apply(adding((number, 1), (5_000, 100), counter=name))
        for number, name in enumerate(NAMES):
            assert await hours(store, name, end=10_000) == {number: 1, 5_000: 100}
            assert await hours(store, name, "day", end=10_000) == {}

    async def test_one_entity_holds_the_hours_of_a_day(self, datastore: Datastore) -> None:
        store = await datastore.store()
        await store.apply(adding(*((hour, hour) for hour in range(24, 48))))
        await store.apply(adding(*((hour, hour) for hour in range(24, 49))))
        await shown()
        place = datastore.place
        found = await datastore.client().query(query_of(place.kinds.buckets, 10, order=KEY))
        assert [len(one.entity.properties) for one in found] == [25, 2]

    async def test_a_commit_may_be_as_large_as_a_flusher_makes_it(self, datastore: Datastore) -> None:
        store, number = await datastore.store(), MOST_IN_COMMIT // 2
        names = [f"name{index:04}{'x' * 20}" for index in range(number)]
        buckets = [BucketAdd(TimeBucket(name, "hour", 0), 0, 1, LATER) for name in names]
        await store.apply(replace(commit(*((name, 1) for name in names)), by_time=ByTime(tuple(buckets), KEPT)))
        assert await hours(store, names[-1]) == {0: 1}

    async def test_processes_with_the_same_rules_share_a_promise(self, datastore: Datastore) -> None:
        key = datastore.place.receipt(buckets.NAME)
        versions = []
        for rules in (KEPT, KEPT, KEPT, MORE, MORE, KEPT):
            store = await datastore.store()
            await store.apply(replace(adding((1, 1)), by_time=ByTime((), rules)))
            (found,) = (await datastore.client().look_up([key])).entities
            versions.append(found.version)
        assert len({*versions[:3]}) == len({*versions[3:]}) == 1
        assert len({*versions}) == 2
        assert await since(store, KEPT) == 0

    async def test_what_a_flusher_without_rules_applies_is_said(self, datastore: Datastore) -> None:
        one, other = await datastore.store(), await datastore.store()
        await one.apply(adding((1, 1)))
        assert await since(other, KEPT) == 0
        await other.apply(replace(commit(("a", 1)), by_time=ByTime()))
        await shown()
        until = await since(one, KEPT)
        assert 0 < until - await one.now() <= buckets.FORCE
        await one.apply(adding((1, 1)))
        assert await since(other, KEPT) == until, "it may come again"

    async def test_a_promise_is_renewed_each_hour(self, datastore: Datastore) -> None:
        store = await datastore.store()
        await store.apply(adding((1, 1)))
        rules = buckets.FollowedRules(datastore.client())
        now = await store.now()
        await rules.promise(KEPT, StoreMillis(now + buckets.RENEWED - 60_000))
        assert (await read(store)).followed[0].until <= now + buckets.FORCE
        later = StoreMillis(now + buckets.RENEWED + 60_000)
        await rules.promise(KEPT, later)
        await shown()
        assert [one.until for one in (await read(store)).followed] == [later + buckets.FORCE]

    async def test_two_that_promise_at_once_are_both_kept(self, datastore: Datastore) -> None:
        async def promise(which: int) -> None:
            rules = buckets.FollowedRules(datastore.client())
            for _ in range(20):
                try:
                    await rules.promise((KEPT[0]._replace(prefix=f"p{which}"),), StoreMillis(1_000))
                except ContendedError:
                    continue
                return

        await asyncio.gather(*(promise(which) for which in range(4)))
        await shown()
        assert len((await read(await datastore.store())).followed) == 4

    async def test_what_others_counted_before_is_not_whole(self, datastore: Datastore) -> None:
        store = await datastore.store()
        await datastore.put(datastore.place.shard("other", 0), {COUNT: {"integer_value": 7}})
        await shown()
        assert await since(store, KEPT) == FOR_EVER
        await store.apply(adding((1, 1)))
        assert 0 < await since(store, KEPT) - await store.now() <= buckets.FORCE

    async def test_what_a_snapshot_shows_of_a_closed_period_is_final(self, datastore: Datastore) -> None:
        """Commits of another process are under way when it is closed. Either the snapshot has them, or they move."""
        flusher, reader = await datastore.store(), await datastore.store()

        async def flush(hour: int) -> None:
            await insist(lambda: flusher.apply(adding((hour, 1))), ContendedError, tries(20), Backoff(0.01, 0.1))

        async def close(hour: int) -> dict[int, int]:
            await reader.close_periods((hour + 1) * HOUR)
            return await hours(reader, begin=hour, end=hour + 1)

        moved = 0
        for hour in range(0, 20, 2):
            shown, *_ = await asyncio.gather(close(hour), *(flush(hour) for _ in range(4)))
            assert await hours(reader, begin=hour, end=hour + 1) == shown
            moved += 4 - sum(shown.values())
        assert sum((await hours(reader)).values()) == 40
        assert moved

    async def test_a_flusher_that_dies_in_a_commit_keeps_series_inexact_for_a_while(self, datastore: Datastore) -> None:
        overlay = ExactOverlay(datastore.clock)
        series = SeriesReader(await datastore.store(), overlay, datastore.clock, ALL_KEPT)
        died = datastore.client()
        transaction = await died.begin()
        await buckets.closed_at(died, transaction=transaction)
        assert not (await series.read(everything("a"))).exact
        await died.rollback(transaction)  # as the server does after a minute
        assert (await series.read(everything("a"))).exact

    async def test_two_that_close_at_once_leave_the_later(self, datastore: Datastore) -> None:
        stores = [await datastore.store() for _ in range(4)]
        await asyncio.gather(*(store.close_periods(number * HOUR) for number, store in enumerate(stores)))
        await shown()
        assert (await read(stores[0])).closed == 3 * HOUR
