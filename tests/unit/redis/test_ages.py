"""What a process knows of the promises in the store, and how long it believes it."""

from collections.abc import Sequence

import pytest

from shared.fleet.fleet_view import FleetView
from shared.model.buckets import Millis
from shared.model.errors import TransientError
from shared.model.receipts import DAY, Promise, ages, promised
from shared.redis.overlay import AGAIN, BELIEVED, KNOWN, KnownPromises
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore

ONE = promised(Millis(7 * DAY), DAY)


class Asked:
    """A store that is asked for promises, and may be away."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.looks = FleetView(MemoryFleetBook(self.store), self.clock, 0.0)
        self.known = KnownPromises(self._promises, self.looks, self.clock)
        self.away = False
        self.times = 0

    async def _promises(self) -> Sequence[Promise]:
        self.times += 1
        if self.away:
            raise TransientError("it is away")
        return await self.store.promises()


@pytest.fixture
async def asked() -> Asked:
    asked = Asked()
    await asked.looks.get()
    return asked


async def test_the_store_is_asked_every_ten_minutes(asked: Asked) -> None:
    assert asked.known.ages() is None
    for _ in range(3):
        await asked.known.refresh()
    assert asked.times == 1
    await asked.store.promise(ONE)
    assert asked.known.ages() == ages([], asked.looks.now())
    asked.clock.turn(BELIEVED)
    await asked.known.refresh()
    assert asked.known.ages() == ages([ONE], asked.looks.now())


async def test_one_that_is_away_is_asked_again_soon_and_believed_for_an_hour(asked: Asked) -> None:
    await asked.known.refresh()
    asked.away = True
    asked.clock.turn(KNOWN)
    await asked.known.refresh()
    assert asked.known.ages() is not None
    asked.clock.turn(AGAIN - 1)
    await asked.known.refresh()
    assert asked.times == 2
    assert asked.known.ages() is None
    asked.away = False
    asked.clock.turn(1)
    await asked.known.refresh()
    assert asked.known.ages() is not None


async def test_nothing_is_known_before_the_store_has_told_its_time(asked: Asked) -> None:
    known = KnownPromises(asked.store.promises, FleetView(MemoryFleetBook(asked.store), asked.clock, 0.0), asked.clock)
    await known.refresh()
    assert known.ages() is None
