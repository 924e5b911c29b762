"""What flushers saw adds up: also of those that are replaced before any of them has watched for long enough."""

from collections.abc import Callable

import pytest

from flusher.flush.flusher import GAP, BacklogWitness
from shared.fleet import FleetView
from shared.model.buckets import BrokerMillis
from shared.model.fleet import LONGEST_LOOK, MARGIN, SILENCE, WATCHES
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore

TURN = 1_200.0
"""Seconds after which a flusher is replaced."""
STEP = 20.0
ENOUGH = SILENCE + MARGIN + WATCHES + 300.0


class Flushers:
    """One at a time; one ingest was taken for dead."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.book = MemoryFleetBook(MemoryStore(self.clock))
        self.flusher: BacklogWitness | None = None
        self.old: Callable[[float], bool] = lambda _: False
        """Whether it holds something old, so many seconds after the beginning."""
        self.time = 0.0

    async def begin(self) -> None:
        await self.book.change(lambda fleet, now: fleet.owes("m", "t").strikes("m", now))

    async def start(self) -> BacklogWitness:
        flusher = BacklogWitness(FleetView(self.book, self.clock, LONGEST_LOOK), self.clock, "t")
        await flusher.tend()
        return flusher

    async def run(self, flusher: BacklogWitness, seconds: float) -> None:
        """It pulls all the time, and says what it sees."""
        for _ in range(int(seconds / STEP)):
            flusher.saw(BrokerMillis(1) if self.old(self.time) else None)
            await flusher.tend()
            self._pass(STEP)

    def _pass(self, seconds: float) -> None:
        self.clock.turn(seconds)
        self.time += seconds

    async def until_forgotten(self, *, overlap: bool, pause: float = 0.0, most: float = 24 * 3_600.0) -> float:
        """Seconds until the ingest is forgotten, while flushers come and go. `pause`: between two of them."""
        flusher = await self.start()
        while self.time < most:
            await self.run(flusher, TURN)
            after = await self.start() if overlap else None
            await flusher.leave()
            if after is None:
                self._pass(pause)
                after = await self.start()
            flusher = after
            if not (await self.book.look()).fleet.members:
                return self.time
        return self.time


@pytest.fixture
async def flushers() -> Flushers:
    one = Flushers()
    await one.begin()
    return one


@pytest.mark.parametrize("overlap", [True, False])
async def test_flushers_that_are_replaced_every_twenty_minutes(flushers: Flushers, *, overlap: bool) -> None:
    assert await flushers.until_forgotten(overlap=overlap) <= ENOUGH + 2 * TURN


async def test_the_time_in_which_nobody_pulls_does_not_count(flushers: Flushers) -> None:
    pause = 3 * 3_600.0
    assert await flushers.until_forgotten(overlap=False, pause=pause) > SILENCE + WATCHES + pause
    assert not (await flushers.book.look()).fleet.members


async def test_what_one_gave_back_that_stopped_is_waited_for(flushers: Flushers) -> None:
    """The other one has watched for long, and has not got it yet."""
    one, other = await flushers.start(), await flushers.start()
    for _ in range(int((SILENCE + 2 * WATCHES) / STEP)):
        flushers.old = lambda _: True
        await flushers.run(one, STEP)
        flushers.old = lambda _: False
        other.saw(None)
        await other.tend()
    await one.leave()
    for _ in range(2):
        assert (await flushers.book.look()).fleet.members
        await flushers.run(other, WATCHES - 200.0)
    assert not (await flushers.book.look()).fleet.members


async def test_one_that_did_not_pull_for_a_while_has_seen_nothing(flushers: Flushers) -> None:
    one = await flushers.start()
    await flushers.run(one, SILENCE + MARGIN + WATCHES / 2)
    flushers._pass(GAP + 1.0)
    await flushers.run(one, WATCHES - 100.0)
    assert (await flushers.book.look()).fleet.members
    await flushers.run(one, 300.0)
    assert not (await flushers.book.look()).fleet.members
