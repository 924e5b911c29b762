"""Flushers killed again and again under a mixed load: totals are exact, nothing is left over, rubbish is buried."""

import asyncio
import random
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.fleet.load import Load
from tests.fleet.pairs import LEASE, Pair
from tests.processes.harness import processes

KILLS = 3
PAUSE = (0.5, 1.5)
"""Seconds between two kills."""
FLUSHERS = 3
TIMEOUT = aiohttp.ClientTimeout(total=20)


@pytest.mark.timeout(120)
async def test_flushers_are_killed_and_everything_counts_once(pair: Pair, tmp_path: Path) -> None:
    log = tmp_path / "log"
    chance = random.Random(5)
    async with (
        processes(tmp_path, log, **pair.settings, COUNTERSINK_FLUSH_INTERVAL="0.2") as started,
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
    ):
        ingest = await started.start("ingest", "--port", "0", "--workers", "2")
        flushers = list(await asyncio.gather(*(started.start("flusher") for _ in range(FLUSHERS))))
        load = Load(pair, session, ingest.url)
        async with load.running():
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(*PAUSE))
                index = chance.randrange(FLUSHERS)
                await flushers[index].end(signal.SIGKILL)
                flushers[index] = await started.start("flusher")
            await asyncio.sleep(LEASE + 1)  # what the last one held is delivered again, beside all the rest
        await load.at_rest()
        for running in (*flushers, ingest):
            assert await running.end(signal.SIGTERM) == 0
        assert await pair.left() == 0
    assert load.answered.total() > 2_000
    assert load.readings.count > 20
    assert load.shards > 1
