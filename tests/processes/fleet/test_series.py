"""Counts by time in a fleet, with both ways of adding: each series is exact and complete, whoever is killed."""

import asyncio
import itertools
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import Processes, Running, accept, processes, series

COUNTERS = 160
IN_A_BATCH = 40
ROUNDS = 4
NAMES = [f"page:{number:03}" for number in range(COUNTERS)]
WITHIN = 60.0


async def replace(started: Processes, running: Running, *command: str) -> Running:
    await running.end(signal.SIGKILL)
    return await started.start(*command)


@pytest.mark.timeout(180)
async def test_each_series_is_exact_whoever_is_killed(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    settings = on_emulators.settings | {
        "COUNTERSINK_OVERLAY": redis.url,
        "COUNTERSINK_FLUSH_INTERVAL": "0.05",
        "COUNTERSINK_WINDOWS": "page:=minute/2d,hour/90d",
    }
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingests = [await started.start("ingest", "--port", "0") for _ in range(2)]
        flushers = [await started.start("flusher") for _ in range(2)]
        for number, begin in itertools.product(range(ROUNDS), range(0, COUNTERS, IN_A_BATCH)):
            names = NAMES[begin : begin + IN_A_BATCH]
            await accept(session, [one.url for one in ingests], dict.fromkeys(names, 1), f"{number}-{begin}")
            if begin == COUNTERS // 2:
                flushers[number % 2] = await replace(started, flushers[number % 2], "flusher")
            if number == 1 and not begin:
                ingests[0] = await replace(started, ingests[0], "ingest", "--port", "0")
            found = await series(session, ingests[1].url, names[0], "by=hour")
            if found["exact"]:
                assert found["total"] == number + 1
        for name in NAMES:
            async with asyncio.timeout(WITHIN):
                while not (found := await series(session, ingests[1].url, name, "by=minute"))["exact"]:
                    await asyncio.sleep(0.2)
            assert found["total"] == ROUNDS, found
        by_hour = [await series(session, ingests[0].url, name, "by=hour") for name in NAMES[::40]]
        assert {(one["total"], one["exact"]) for one in by_hour} == {(ROUNDS, True)}
