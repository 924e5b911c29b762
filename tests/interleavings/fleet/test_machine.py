"""Whatever is killed, stopped or frozen, in whatever order: what was answered counts once. FLEET_SEEDS=n for more."""

import os
from pathlib import Path

import aiohttp
import pytest

from tests.interleavings.fleet.world import SETTINGS, World
from tests.processes.fleet.pairs import Pair
from tests.processes.harness import processes

SEEDS = range(int(os.environ.get("FLEET_SEEDS", "1")))
STEPS = 150


@pytest.mark.timeout(150)
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_answered_counts_once_whatever_happens(pair: Pair, seed: int, tmp_path: Path) -> None:
    async with (
        processes(tmp_path, tmp_path / "log", **pair.settings, **SETTINGS) as started,
        aiohttp.ClientSession() as session,
    ):
        world = World(pair, started, session, seed)
        await world.begin()
        try:
            await world.run(STEPS)
            await world.finish()
        except BaseException as error:
            error.add_note("\n".join(world.history))
            raise
    assert world.worked(STEPS)
