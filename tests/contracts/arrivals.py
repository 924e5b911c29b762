"""The contract of what a copy writes beside commits: counts by time stand in shards of their own, and rules add up."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from shared.model.buckets import DAY, HOUR, BucketAdd, Followed, Millis, Rule, StoreMillis, TimeBucket
from shared.model.jobs import ADD, DONE, FAILED, RESET, Job, JobState, Progress
from shared.model.moving import shard_of_copy
from shared.model.words import Commit, Mark
from shared.ports.store import Arrivals, Store
from tests.contracts.by_time import KEPT, adding, hours, since
from tests.contracts.store import LATER

OTHER = (Rule("", (("day", Millis(DAY)),)),)
SHARD = shard_of_copy("elsewhere")


class Arriving(NamedTuple):
    store: Store
    arrivals: Arrivals


def counts(*of: tuple[int, int], shard: int = SHARD, by: str = "hour") -> list[BucketAdd]:
    return [BucketAdd(TimeBucket("a", by, hour * HOUR), shard, held, StoreMillis(LATER)) for hour, held in of]


class ArrivalsContract:
    """Inherit it, with a fixture `arriving` that is empty at first."""

    async def test_counts_are_written_in_place_of_those_before(self, arriving: Arriving) -> None:
        store, arrivals = arriving
        await store.apply(adding((1, 5)))
        for held in (7, 3, 3):
            await arrivals.put(counts((1, held), (25, 2)))
        assert await hours(store) == {1: 8, 25: 2}
        await store.apply(adding((1, 1)))
        assert await hours(store) == {1: 9, 25: 2}

    async def test_copies_of_two_origins_add_up(self, arriving: Arriving) -> None:
        for origin in ("one", "two"):
            await arriving.arrivals.put(counts((1, 7), shard=shard_of_copy(origin)))
        assert await hours(arriving.store) == {1: 14}

    async def test_what_is_held_is_that_of_the_copy_alone(self, arriving: Arriving) -> None:
        store, arrivals = arriving
        await store.apply(adding((1, 5), (3, 4)))
        await arrivals.put(counts((1, 7), (2, 0)))
        asked = counts((1, 7), (2, 0), (3, 4), (2, 1)) + counts((1, 7), by="day")[:1]
        assert await arrivals.held(asked) == [7, 0, None, 0, None]

    async def test_an_audit_reads_the_shard_and_until_when_it_is_kept(self, arriving: Arriving) -> None:
        await arriving.arrivals.put(counts((1, 7)))
        async with arriving.store.audit_data() as data:
            ((one,),) = [page async for page in data.buckets()]
        assert (one.bucket, one.held, one.shard) == (TimeBucket("a", "hour", HOUR), 7, SHARD)
        assert one.expires >= LATER

    async def test_an_audit_reads_all_marks_though_they_are_beyond_64_bits(self, arriving: Arriving) -> None:
        marks = {Mark("x", "a", 0, 2**66), Mark("x", "b", 0, -1), Mark("y", "a", 0, 7)}
        await arriving.store.apply(Commit((), (), marks=(*marks,)))
        async with arriving.store.audit_data() as data:
            assert {one async for page in data.marks() for one in page} == marks

    async def test_a_job_is_kept_unless_there_is_one_of_its_id(self, arriving: Arriving) -> None:
        number = Progress(3, 200, 199, 1, 2, 7, (("a", "it is full"),))
        state = JobState(Job("acme/j", ADD, "p:", 5, 123, StoreMillis(LATER)), 0, number, FAILED, 456, "stopped")
        other = replace(state, job=state.job._replace(id="j", kind=RESET, number=0), state=DONE, why="")
        await arriving.arrivals.keep([state])
        await arriving.arrivals.keep([replace(state, why="not this"), other])
        async with arriving.store.audit_data() as data:
            found = [one async for page in data.jobs() for one in page]
        assert sorted(found, key=lambda one: one.job) == [state, other]

    @pytest.mark.parametrize("first", [True, False])
    async def test_periods_are_whole_only_since_both_stores_kept_them(self, arriving: Arriving, first: bool) -> None:
        """The other one kept days alone until the copy."""
        store, arrivals = arriving
        if first:
            await store.apply(adding((1, 5)))
        await arrivals.follow([Followed(OTHER, 7 * HOUR)])
        await arrivals.follow([Followed(OTHER, 9 * HOUR)])
        if not first:
            await store.apply(adding((1, 5)))
        assert await since(store, KEPT) == 9 * HOUR
