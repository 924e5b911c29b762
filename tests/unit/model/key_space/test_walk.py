"""A walk visits every name, a limited number of pages at once, and resumes where it stopped."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.ranges import Range
from tests.unit.model.key_space.virtual import Computed, VirtualStore
from tests.unit.model.key_space.walk import Report, Walk
from tests.unit.strategies import names

NUMBERS = VirtualStore(Computed(1_000, "n:{:04}".format))


class Pages:
    """Remembers what was visited, and fails or hangs where it is told to."""

    def __init__(self, fails: str = "", hangs: str = "") -> None:
        self.seen: list[str] = []
        self.most = self._now = 0
        self.hung = asyncio.Event()
        self._fails, self._hangs = fails, hangs

    async def visit(self, page: Sequence[str]) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0)
            if self._fails in page:
                raise RuntimeError("as told")
            if self._hangs in page:
                self.hung.set()
                await asyncio.Event().wait()
            self.seen += page
        finally:
            self._now -= 1


async def test_it_says_what_it_did() -> None:
    pages = Pages()
    report = await Walk(NUMBERS, page=10).run(pages.visit, at_once=4)
    assert sorted(pages.seen) == [*NUMBERS]
    assert report.names == 1_000
    assert report.pages + report.empty == report.tasks
    assert 100 <= report.pages <= 160
    assert report.full < report.pages
    assert 3 <= report.depth <= 8


async def test_of_nothing_it_takes_one_look() -> None:
    pages = Pages()
    report = await Walk(VirtualStore(Computed(0, str)), page=10).run(pages.visit, at_once=4)
    assert report == Report(tasks=1, empty=1, full=0, names=0, depth=1)
    assert pages.most == 0


@pytest.mark.parametrize("at_once", [1, 2, 7])
async def test_it_visits_so_many_pages_at_once_and_no_more(at_once: int) -> None:
    pages = Pages()
    await Walk(NUMBERS, page=10).run(pages.visit, at_once)
    assert pages.most == at_once


async def test_one_at_a_time_goes_in_order() -> None:
    pages = Pages()
    await Walk(NUMBERS, page=10).run(pages.visit, at_once=1)
    assert pages.seen == [*NUMBERS]


async def test_open_ranges_are_few() -> None:
    """They are what must be kept."""
    walk = Walk(VirtualStore(Computed(100_000, "n:{:06}".format)), page=10)
    most = 0

    async def visit(page: Sequence[str]) -> None:
        nonlocal most
        most = max(most, len(walk.open))

    report = await walk.run(visit, at_once=4)
    assert report.tasks > 10_000
    assert most < 200
    assert walk.open == []


async def test_after_an_error_it_goes_on_from_what_is_open() -> None:
    pages = Pages(fails="n:0500")
    walk = Walk(NUMBERS, page=10)
    with pytest.raises(RuntimeError, match="as told"):
        await walk.run(pages.visit, at_once=4)
    assert 0 < len(pages.seen) < 1_000
    again = Pages()
    await Walk(NUMBERS, page=10, ranges=walk.open).run(again.visit, at_once=4)
    assert {*pages.seen, *again.seen} == {*NUMBERS}
    assert len(pages.seen) + len(again.seen) == 1_000
    report = await walk.run(again.visit, at_once=4)
    assert report.names == 1_000
    assert walk.open == []


async def test_a_walk_that_is_cancelled_leaves_nothing_behind() -> None:
    pages = Pages(hangs="n:0500")
    walk = Walk(NUMBERS, page=10)
    running = asyncio.create_task(walk.run(pages.visit, at_once=4))
    await pages.hung.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(asyncio.all_tasks()) == 1
    assert any(one.after < "n:0500" <= (one.until or "~") for one in walk.open)
    again = Pages()
    await walk.run(again.visit, at_once=4)
    assert {*pages.seen, *again.seen} == {*NUMBERS}


async def test_what_is_open_tells_how_deep_it_is() -> None:
    walk = Walk(NUMBERS, page=10, ranges=[Range("n:0100", "n:0119", 7)])
    report = await walk.run(Pages().visit, at_once=4)
    assert (report.names, report.depth) == (19, 8)


@given(st.sets(names, max_size=80), st.integers(1, 9), st.integers(1, 5), st.randoms(use_true_random=False))
def test_whatever_fails_everything_is_visited_and_only_what_was_in_work_again(
    found: set[str], page: int, at_once: int, chance: random.Random
) -> None:
    keys = sorted(found)
    done: list[str] = []

    async def visit(some: Sequence[str]) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            raise RuntimeError("now and then")
        done.extend(some)

    async def insist() -> None:
        ranges = [Range()]
        while ranges:
            walk = Walk(VirtualStore(Computed(len(keys), keys.__getitem__)), page=page, ranges=ranges)
            before = len(done)
            try:
                await walk.run(visit, at_once)
            except RuntimeError:
                assert walk.report.names <= len(done) - before <= walk.report.names + at_once * page
            else:
                assert walk.report.names == len(done) - before
            ranges = walk.open
            assert all(one.until is None or one.after < one.until for one in ranges)

    asyncio.run(insist())
    assert {*done} == found
