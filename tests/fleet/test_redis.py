"""Ingests that share an overlay in Redis: each reads at once, and exactly, what any of them has answered."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clocks.moved import Clocks
from tests.emulators.redis_fixtures import RedisServer, Start
from tests.fleet.pairs import Emulated
from tests.processes.harness import processes

INCREMENTS = 60
WITHIN = 30.0
FORGOTTEN = 195.0
"""Seconds after which Redis has forgotten what was settled."""


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
@pytest.mark.parametrize("on_emulators", ["blind"], indirect=True)
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
            async with session.post(f"{asked.url}/v1/counters/shared") as response:
                assert response.status == 202, await response.text()
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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("on_emulators", ["blind"], indirect=True)
async def test_an_ingest_whose_machine_was_suspended_knows_that_what_it_read_before_is_old(
    on_emulators: Emulated,
    start_redis: Start,
    clocks: Callable[[], Clocks],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Redis has forgotten meanwhile that the counter was written."""
    of_others, of_sleeper = clocks(), clocks()
    with monkeypatch.context() as patched:
        for name, value in of_others.environment.items():
            patched.setenv(name, value)
        redis = start_redis()
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with (
        processes(tmp_path, tmp_path / "log", **settings) as started,
        aiohttp.ClientSession() as session,
    ):
        other, sleeper = await asyncio.gather(
            started.start("ingest", "--port", "0", **of_others.environment),
            started.start("ingest", "--port", "0", **of_sleeper.environment),
        )
        await started.start("flusher", **of_others.environment)
        await until_exact(session, other.url, sleeper.url)
        assert (await reading_of(session, sleeper.url))["value"] == 0
        with of_sleeper.suspended(sleeper.process.pid, FORGOTTEN):
            for _ in range(INCREMENTS):
                async with session.post(f"{other.url}/v1/counters/shared") as response:
                    assert response.status == 202, await response.text()
            while (await reading_of(session, other.url))["pending"]:
                await asyncio.sleep(0.1)
            of_others.move_all(FORGOTTEN)
        for _ in range(20):
            reading = await reading_of(session, sleeper.url)
            assert reading["value"] == INCREMENTS or not reading["exact"], reading
        await until_exact(session, sleeper.url)
        assert (await reading_of(session, sleeper.url))["value"] == INCREMENTS
