"""Dead letters, as real processes see them: no restart makes them vanish from readings, and a set finds them."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.datastore.fleet import DatastoreFleetBook
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.fleet.poison import Poison
from tests.processes.harness import count, processes

COUNTER = "refused"
NUMBER = 5
WITHIN = 90.0


async def exact_reading(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The first one that says that it is exact."""
    async with asyncio.timeout(WITHIN):
        while True:
            async with session.get(f"{url}/v1/counters/{COUNTER}?max_age=0") as response:
                reading: dict[str, Any] = await response.json()
            if response.status == 200 and reading["exact"]:
                return reading
            await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_dead_letters_stay_pending_over_restarts_and_a_set_finds_them(
    on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    poison = Poison(on_emulators, [COUNTER])
    await poison.begin()
    datastore = on_emulators.datastore
    book = DatastoreFleetBook(datastore.client())
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with (
        processes(tmp_path, tmp_path / "log", **settings) as started,
        aiohttp.ClientSession() as session,
    ):
        ingest, _ = await asyncio.gather(started.start("ingest", "--port", "0"), started.start("flusher"))
        await exact_reading(session, ingest.url)
        await count(ingest.url, NUMBER, COUNTER)
        async with asyncio.timeout(WITHIN):
            while len(await on_emulators.dead_letters()) < NUMBER:
                await asyncio.sleep(0.2)
        assert (await exact_reading(session, ingest.url))["value"] == NUMBER
        await ingest.end(signal.SIGKILL)
        ingest = await started.start("ingest", "--port", "0")
        async with asyncio.timeout(WITHIN):  # others fence the one that is gone; Redis has everything of it until then
            while len((await book.look()).fleet.members) > 1:
                await asyncio.sleep(0.2)
        assert (await exact_reading(session, ingest.url))["value"] == NUMBER
        await asyncio.to_thread(redis.kill)
        await asyncio.to_thread(redis.start)
        reading = await exact_reading(session, ingest.url)
        assert (reading["value"], reading["pending"], reading["exists"]) == (NUMBER, NUMBER, True)
        await poison.end()
        async with session.put(f"{ingest.url}/v1/counters/{COUNTER}", json={"value": 100}) as response:
            assert response.status == 200, await response.text()
        assert f"increments: {NUMBER} counted" in (await started.command("dlq", "replay", "--all")).out
        reading = await exact_reading(session, ingest.url)
        assert (reading["value"], reading["pending"]) == (100, 0)
