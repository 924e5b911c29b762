"""Lists of names come from the overlay that the fleet names now."""

from typing import Any

import pytest

from shared.fleet.fleet_view import FleetView
from shared.memory.fleet import MemoryFleetBook
from shared.memory.store import MemoryStore
from shared.model.errors import InexactError
from shared.redis import overlay as redis_overlay
from shared.redis.overlay import RedisOverlay
from shared.runtime.clock import ManualClock


async def test_a_list_does_not_come_from_an_overlay_that_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    book = MemoryFleetBook(store)
    looks = FleetView(book, clock, 1.0)
    overlay = RedisOverlay("redis://127.0.0.1:1", looks, clock, membership=None, promises=store.promises)

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
