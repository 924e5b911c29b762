"""One look at the fleet serves all callers, and is never older than what was known before."""

import asyncio

from shared.fleet.fleet_view import FleetView
from shared.model.fleet import Fleet
from shared.ports.store import FleetLook
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


async def test_a_fleet_whose_entity_was_deleted_is_seen_as_it_is() -> None:
    """As the runbook for a store that was put back says. Whoever asks must not wait for the old version for ever."""
    clock = ManualClock()
    book = MemoryFleetBook(MemoryStore(clock))
    looks = FleetView(book, clock, 0.0)
    await looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    book._fleet = Fleet()
    clock.turn(1.0)
    async with asyncio.timeout(60):
        look = await looks.get()
    assert look is not None
    assert look.fleet.version == 0


async def test_a_look_that_began_before_a_change_does_not_undo_it() -> None:
    clock = ManualClock()
    book = MemoryFleetBook(MemoryStore(clock))
    looks = FleetView(book, clock, 0.0)
    old, look = await book.look(), book.look
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> FleetLook:
        begun.set()
        await go_on.wait()
        book.look = look  # type: ignore[method-assign]
        return old

    book.look = slow  # type: ignore[method-assign]
    asking = asyncio.create_task(looks.get())
    await begun.wait()
    book.look = look  # type: ignore[method-assign]
    clock.turn(0.1)
    await looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    go_on.set()
    await asking
    assert looks.last is not None
    assert looks.last.fleet.overlay.epoch == 1
