"""What a process lists, and what it settles, is in the overlay that the fleet names now."""

from typing import Any

import pytest

from shared.fleet.fleet_view import FleetView
from shared.model.buckets import Instant
from shared.model.errors import InexactError
from shared.redis import overlay as redis_overlay
from shared.redis.overlay import RedisOverlay
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


async def test_a_list_does_not_come_from_an_overlay_that_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    book = MemoryFleetBook(store)
    looks = FleetView(book, clock, 1.0)
    overlay = RedisOverlay("redis://127.0.0.1:1", looks, clock, membership=None, store=store)

    async def names_in(_server: Any, named: Any, *_: Any) -> list[str]:
        return [f"in {named.nonce}"]

    monkeypatch.setattr(redis_overlay, "names_in", names_in)
    await looks.change(lambda fleet, _: fleet.names("old", "i", "p"))
    assert await overlay.names("") == ["in old"]
    await FleetView(book, clock, 1.0).change(lambda fleet, _: fleet.names("new", "j", "p"))
    clock.turn(2.0)
    assert await overlay.names("") == ["in new"]
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
