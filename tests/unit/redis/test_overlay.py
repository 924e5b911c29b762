"""The overlay that the fleet names now, and what a process knows of the promises in the store."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared.fleet.fleet_view import FleetView
from shared.model.buckets import Instant, Millis
from shared.model.errors import InexactError, TransientError
from shared.model.receipts import DAY, Promise, ages, promised
from shared.redis.overlay import AGAIN, BELIEVED, KNOWN, KnownPromises, RedisOverlay
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


async def test_a_list_does_not_come_from_an_overlay_that_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    book = MemoryFleetBook(store)
    looks = FleetView(book, clock, 1.0)
    overlay = RedisOverlay("redis://127.0.0.1:1", looks, clock, membership=None, store=store)

    async def ask(_script: Any, named: Any, *_: Any) -> list[Any]:
        return [b"ok", [f"in {named.nonce}".encode()]]

    monkeypatch.setattr(overlay._server, "ask", ask)
    overlay._server.up = True
    await looks.change(lambda fleet, _: fleet.names("old", "i", "p"))
    assert await overlay.names("") == ["in old"]
    await FleetView(book, clock, 1.0).change(lambda fleet, _: fleet.names("new", "j", "p"))
    clock.turn(2.0)
    assert await overlay.names("") == ["in new"]
    overlay._server.up = False
    with pytest.raises(InexactError):  # Redis does not answer, so nobody knows what is in it
        await overlay.names("", exact=True)
    await overlay.close()


@pytest.mark.parametrize("first", ["", "old"])
async def test_what_is_applied_is_settled_where_the_fleet_has_it_now(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """A flusher looks at the fleet each five seconds. Meanwhile an overlay may be named, the first one or another."""
    clock = ManualClock()
    store = MemoryStore(clock)
    book = MemoryFleetBook(store)
    looks = FleetView(book, clock, 1.0)
    overlay = RedisOverlay("redis://127.0.0.1:1", looks, clock, membership=None, store=store)
    settled: list[str] = []

    async def ask(_script: Any, named: Any, _time: Any, *keys: str) -> list[Any]:
        if named.nonce != "new":
            return [b"bad"]
        settled.extend(keys[:2])  # a script does only so much
        return [b"ok", 2]

    monkeypatch.setattr(overlay._server, "ask", ask)
    if first:
        await looks.change(lambda fleet, _: fleet.names(first, "i", "p"))
    await looks.get()
    await FleetView(book, clock, 1.0).change(lambda fleet, _: fleet.names("new", "j", "p"))
    clock.turn(0.1)
    await overlay.settle(["a", "b", "c"], Instant(7))
    assert settled == ["a", "b", "c"]
    await overlay.close()


async def test_without_any_overlay_there_is_nothing_to_settle() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    looks = FleetView(MemoryFleetBook(store), clock, 1.0)
    overlay = RedisOverlay("redis://127.0.0.1:1", looks, clock, membership=None, store=store)
    await overlay.settle(["a"], Instant(7))
    await overlay.close()


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
