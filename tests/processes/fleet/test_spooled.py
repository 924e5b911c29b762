"""What waits in a spool stays pending when its ingest is killed, and when Redis is restarted after that."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.emulators.proxy import proxy
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.fleet.test_redis import reading_of, until_exact
from tests.processes.harness import count, processes
from tests.world.scraping import scrape, until

NUMBER = 5
WITHIN = 60.0


async def pending_and_exact(session: aiohttp.ClientSession, url: str) -> None:
    await until_exact(session, url)
    reading = await reading_of(session, url)
    assert (reading["value"], reading["pending"], reading["exact"]) == (NUMBER, NUMBER, True)


@pytest.mark.timeout(300)
async def test_spooled_increments_stay_pending_over_restarts(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    async with proxy(on_emulators.settings["PUBSUB_EMULATOR_HOST"]) as network, aiohttp.ClientSession() as session:
        settings = on_emulators.settings | {
            "PUBSUB_EMULATOR_HOST": network.address,
            "COUNTERSINK_OVERLAY": redis.url,
            "COUNTERSINK_SPOOL": str(tmp_path / "spool.db"),
            "COUNTERSINK_SPOOL_DISK": "durable",
        }
        async with processes(tmp_path, tmp_path / "log", **settings) as started:
            ingest = await started.start("ingest", "--port", "0")
            await until_exact(session, ingest.url)
            network.close()
            await count(ingest.url, NUMBER, "shared")

            async def some_of_the_spool_is_used() -> bool:
                return 0 < (await scrape(ingest.url)).sum("countersink_spool_used_ratio") < 1

            await until(some_of_the_spool_is_used)
            await ingest.end(signal.SIGKILL)
            ingest = await started.start("ingest", "--port", "0")
            await pending_and_exact(session, ingest.url)
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)
            # What the killed one may have published is in no overlay any more, so readings are not exact for a while.
            assert (await reading_of(session, ingest.url))["value"] == NUMBER
            network.open()
            await started.start("flusher")
            async with asyncio.timeout(WITHIN):
                while (await reading_of(session, ingest.url))["pending"]:
                    await asyncio.sleep(0.1)
            reading = await reading_of(session, ingest.url)
            assert (reading["value"], reading["applied"]) == (NUMBER, NUMBER)
