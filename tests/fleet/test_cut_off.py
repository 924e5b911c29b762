"""Publishes, commits and acks whose answers are cut off again and again: they were done, and are done once."""

import asyncio
import random
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.emulators.proxy import Proxy, proxy
from tests.fleet.load import Load
from tests.fleet.pairs import Emulated
from tests.processes.harness import processes

CUTS = 12
PAUSE = (0.1, 0.5)
"""Seconds between two of one wire."""
DEAF = 1.0
"""Seconds in which an answer should come that can be lost."""
TIMEOUT = aiohttp.ClientTimeout(total=20)


async def cut_again_and_again(wire: Proxy, seed: int) -> int:
    """At random moments; how often an answer was on its way."""
    chance = random.Random(seed)
    met = 0
    for _ in range(CUTS):
        await asyncio.sleep(chance.uniform(*PAUSE))
        before = wire.lost
        wire.lose_answers()
        for _ in range(50):
            await asyncio.sleep(DEAF / 50)
            if wire.lost > before:
                met += 1
                break
        wire.cut()
    return met


@pytest.mark.timeout(120)
async def test_publishes_commits_and_acks_whose_answers_are_lost_count_once(
    on_emulators: Emulated, tmp_path: Path
) -> None:
    pair = on_emulators
    async with (
        proxy(pair.pubsub.host) as publishes,
        proxy(pair.pubsub.host) as acks,
        proxy(pair.datastore.host) as commits,
        processes(tmp_path, tmp_path / "log", **pair.settings, COUNTERSINK_FLUSH_INTERVAL="0.1") as started,
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
    ):
        behind = {"PUBSUB_EMULATOR_HOST": acks.address, "DATASTORE_EMULATOR_HOST": commits.address}
        ingest, *flushers = await asyncio.gather(
            started.start("ingest", "--port", "0", PUBSUB_EMULATOR_HOST=publishes.address),
            started.start("flusher", **behind),
            started.start("flusher", **behind),
        )
        load = Load(pair, session, ingest.url)
        async with load.running():
            met = await asyncio.gather(
                *(cut_again_and_again(wire, seed) for seed, wire in enumerate((publishes, acks, commits)))
            )
        await load.at_rest()
        for running in (*flushers, ingest):
            assert await running.end(signal.SIGTERM) == 0
        assert await pair.left() == 0
    assert all(one > CUTS / 2 for one in met), met
    assert load.answered.total() > 500
