"""Ingests that share an overlay in Redis: each reads at once, and exactly, what any of them has answered."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import count, processes

INCREMENTS = 60
WITHIN = 30.0


async def reading_of(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(f"{url}/v1/counters/shared") as response:
        reading: dict[str, Any] = await response.json()
    assert response.status == 200, reading
    return reading


async def until_exact(session: aiohttp.ClientSession, *urls: str) -> None:
    """A fleet that has just begun has to find out that nobody else was there."""
    async with asyncio.timeout(WITHIN):
        while not all([(await reading_of(session, url))["exact"] for url in urls]):
            await asyncio.sleep(0.05)


@pytest.mark.timeout(120)
async def test_a_second_ingest_reads_at_once_what_the_first_has_answered(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with (
        processes(tmp_path, tmp_path / "log", **settings) as started,
        aiohttp.ClientSession() as session,
    ):
        one, other = await asyncio.gather(*(started.start("ingest", "--port", "0") for _ in range(2)))
        await until_exact(session, one.url, other.url)
        for number in range(INCREMENTS):
            asked, reads = (one, other) if number % 2 else (other, one)
            await count(asked.url, counter="shared")
            reading = await reading_of(session, reads.url)
            assert (reading["value"], reading["pending"], reading["exact"]) == (number + 1, number + 1, True)
        flusher = await started.start("flusher")
        async with asyncio.timeout(WITHIN):
            while reading["pending"]:
                for running in (one, other):
                    reading = await reading_of(session, running.url)
                    assert (reading["value"], reading["exact"]) == (INCREMENTS, True)
        for running in (one, other, flusher):
            assert await running.end(signal.SIGTERM) == 0
        assert await on_emulators.left() == 0


@pytest.mark.timeout(180)
async def test_a_host_that_was_stopped_and_started_reads_exactly(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    """As `compose restart` does it: increments wait in Pub/Sub, and Redis keeps nothing."""
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with (
        processes(tmp_path, tmp_path / "log", **settings) as started,
        aiohttp.ClientSession() as session,
    ):
        ingest, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
        await until_exact(session, ingest.url)
        assert await flusher.end(signal.SIGTERM) == 0
        await count(ingest.url, INCREMENTS, "shared")
        assert await ingest.end(signal.SIGTERM) == 0
        redis.kill()
        redis.start()
        ingest = await started.start("ingest", "--port", "0")
        for _ in range(20):
            reading = await reading_of(session, ingest.url)
            assert reading["value"] == INCREMENTS or not reading["exact"]
            await asyncio.sleep(0.1)
        flusher = await started.start("flusher")
        await until_exact(session, ingest.url)
        assert (await reading_of(session, ingest.url))["value"] == INCREMENTS
        async with session.get(f"{ingest.url}/v1/fleet") as response:
            assert [one["state"] for one in (await response.json())["ingests"]] == ["joined"]
        for running in (ingest, flusher):
            assert await running.end(signal.SIGTERM) == 0
