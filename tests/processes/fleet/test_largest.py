"""The largest counters of a fleet: at each instant those that everything accepted makes them, whoever is killed."""

import asyncio
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import Running, accept, processes

NAMES = [f"score:{number:02}" for number in range(12)]
FIRST = 1_000
MOVES = 30
WITHIN = 60.0


async def largest(session: aiohttp.ClientSession, ingest: Running, limit: int) -> tuple[list[tuple[str, int]], bool]:
    async with session.get(f"{ingest.url}/v1/counters?prefix=score:&order=value&limit={limit}") as response:
        answer: dict[str, Any] = await response.json()
    if response.status == 503:
        return [], False
    assert response.status == 200, answer
    return [(one["name"], one["value"]) for one in answer["counters"]], answer["exact"]


async def until_right(session: aiohttp.ClientSession, ingest: Running, values: Mapping[str, int]) -> None:
    expected = sorted(values.items(), key=lambda one: (-one[1], one[0]))
    for limit in (1, 3, len(NAMES)):
        async with asyncio.timeout(WITHIN):
            while (answer := await largest(session, ingest, limit)) != (expected[:limit], True):
                assert not answer[1], answer
                await asyncio.sleep(0.2)


@pytest.mark.timeout(240)
async def test_the_largest_are_of_one_instant_whoever_is_killed(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    """Points move between players, so that all together have the same number at each instant."""
    settings = on_emulators.settings | {
        "COUNTERSINK_OVERLAY": redis.url,
        "COUNTERSINK_FLUSH_INTERVAL": "0.2",
        "COUNTERSINK_TOP": "score:=12",
    }
    chance, values, exact_ones = random.Random(3), dict.fromkeys(NAMES, FIRST), 0
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingests = [await started.start("ingest", "--port", "0") for _ in range(2)]
        flushers = [await started.start("flusher") for _ in range(2)]
        await accept(session, [one.url for one in ingests], {**values, "page:large": 10**6}, "first")
        await until_right(session, ingests[0], values)
        redis.kill()
        await accept(session, [one.url for one in ingests], {NAMES[0]: 10**5}, "without Redis")
        values[NAMES[0]] += 10**5
        redis.start()
        await until_right(session, ingests[1], values)
        for move in range(MOVES):
            one, other = chance.sample(NAMES, 2)
            points = chance.randint(1, 300)
            await accept(session, [ingest.url for ingest in ingests], {one: -points, other: points}, f"move-{move}")
            values[one] -= points
            values[other] += points
            if move % 15 == 7:
                which = flushers if move % 2 else ingests
                at = chance.randrange(2)
                await which[at].end(signal.SIGKILL)
                if which is flushers:
                    which[at] = await started.start("flusher")
                else:
                    which[at] = await started.start("ingest", "--port", "0")
            found, exact = await largest(session, ingests[move % 2], len(NAMES))
            assert found == sorted(found, key=lambda one: (-one[1], one[0]))
            if exact:
                exact_ones += 1
                assert dict(found) == values
        await until_right(session, ingests[0], values)
        assert exact_ones > 5
        for query in ("prefix=score:&limit=13", "prefix=page:", "limit=1"):
            async with session.get(f"{ingests[0].url}/v1/counters?order=value&{query}") as response:
                assert (response.status, (await response.json())["field"]) == (422, "order")
