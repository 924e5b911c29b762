"""Counters are listed although their increments move from place to place meanwhile."""

from collections.abc import Sequence

import pytest

from shared.counters.reader import AllNames
from shared.memory.overlay import ProcessOverlay
from shared.model.errors import InexactError
from tests.world.manual_clock import ManualClock
from tests.world.memory.store import MemoryStore

ORDER = ("pending", "dead", "stored")


class Moving:
    """Where an increment is. After each answer, it moves on by one place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def names_in(self, place: str) -> Sequence[str]:
        there = ["a"] if self._place == place else []
        self._place = ORDER[min(ORDER.index(self._place) + 1, 2)]
        return there


class MovingOverlay(ProcessOverlay):
    def __init__(self, moving: Moving) -> None:
        super().__init__(ManualClock(), exact=True)
        self._moving = moving

    async def names(self, *_: object, **__: object) -> Sequence[str]:
        return self._moving.names_in("pending")


class MovingStore(MemoryStore):
    def __init__(self, moving: Moving) -> None:
        super().__init__(ManualClock())
        self._moving = moving

    async def dead_names(self, *_: object) -> Sequence[str]:
        return self._moving.names_in("dead")

    async def names(self, *_: object) -> Sequence[str]:
        return self._moving.names_in("stored")


@pytest.mark.parametrize("place", ORDER)
async def test_a_counter_that_moves_is_listed(place: str) -> None:
    moving = Moving(place)
    assert await AllNames(MovingStore(moving), MovingOverlay(moving)).page("", "", 10) == ["a"]


async def test_an_overlay_that_is_not_shared_lists_what_it_has() -> None:
    clock = ManualClock()
    names = AllNames(MemoryStore(clock), ProcessOverlay(clock))
    assert await names.page("", "", 10, exact=True) == []


async def test_an_overlay_that_should_see_everything_and_does_not_is_an_error() -> None:
    clock = ManualClock()
    overlay = ProcessOverlay(clock)
    overlay.shared = True
    with pytest.raises(InexactError):
        await AllNames(MemoryStore(clock), overlay).page("", "", 10, exact=True)


@pytest.mark.parametrize(("shared", "exact"), [(True, True), (True, False), (False, True)])
async def test_a_list_says_whether_it_may_lack_names(shared: bool, exact: bool) -> None:
    clock = ManualClock()
    overlay = ProcessOverlay(clock, exact=exact)
    overlay.shared = shared
    names = AllNames(MemoryStore(clock), overlay)
    assert await names.listed("", "", 10) == ([], shared and exact)
