"""The overlay of one process."""

import pytest

from shared.memory.overlay import ProcessOverlay
from tests.contracts.entries import EntriesContract, Written
from tests.world.manual_clock import ManualClock


def make_written(kind: type[ProcessOverlay] = ProcessOverlay) -> Written:
    clock = ManualClock()

    async def later(seconds: float) -> None:
        clock.turn(seconds)

    overlay = kind(clock)
    return Written(overlay, overlay, exact=False, later=later)


class TestProcessOverlay(EntriesContract):
    @pytest.fixture
    async def written(self) -> Written:
        return make_written()
