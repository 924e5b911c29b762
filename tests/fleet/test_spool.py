"""Pub/Sub away: ingest goes on accepting into its spool, also when it is killed; all of it counts once."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.emulators.proxy import proxy
from tests.fleet.pairs import Emulated
from tests.processes.harness import Running, processes

PATIENCE = 20.0
CLIENTS = 8


async def count(session: aiohttp.ClientSession, url: str, numbers: range) -> int:
    """Each under an id of its own, one of four twice; how many of the answers were 202."""
    accepted = 0
    for number in numbers:
        for _ in range(1 + (number % 4 == 0)):
            async with session.post(f"{url}/v1/counters/a", json={"id": str(number)}) as response:
                accepted += response.status == 202
    return accepted


async def total(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/v1/counters/a", params={"max_age": "0"}) as response:
        return int((await response.json())["applied"]) if response.status == 200 else -1


@pytest.mark.timeout(120)
async def test_what_is_accepted_while_pubsub_is_away_counts_once_when_it_is_back(
    on_emulators: Emulated, tmp_path: Path
) -> None:
    pair = on_emulators
    async with (
        proxy(pair.pubsub.host) as wire,
        processes(
            tmp_path,
            tmp_path / "log",
            **pair.settings
            | {
                "PUBSUB_EMULATOR_HOST": wire.address,
                "COUNTERSINK_SPOOL": str(tmp_path / "spool.db"),
                "COUNTERSINK_FLUSH_INTERVAL": "0.1",
            },
        ) as started,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session,
    ):
        await started.start("flusher")
        ingest = await started.start("ingest", "--port", "0")
        assert await count(session, ingest.url, range(20)) == 25

        await wire.go()
        answers = await asyncio.gather(
            *(count(session, ingest.url, range(100 * n, 100 * n + 40)) for n in range(1, CLIENTS + 1))
        )
        assert answers == [50] * CLIENTS, "no client noticed"
        async with session.get(f"{ingest.url}/readyz") as response:
            assert response.status == 200
        await ingest.end(signal.SIGKILL)
        ingest = await started.start("ingest", "--port", "0")
        assert await count(session, ingest.url, range(2_000, 2_040)) == 50

        await wire.come()
        expected = 20 + CLIENTS * 40 + 40
        async with asyncio.timeout(PATIENCE):
            while await total(session, ingest.url) != expected:
                await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE):
            while await spooling(session, ingest):
                await asyncio.sleep(0.1)
        assert await pair.left() == 0
        assert await total(session, ingest.url) == expected


async def spooling(session: aiohttp.ClientSession, ingest: Running) -> bool:
    async with session.get(f"{ingest.url}/metrics") as response:
        return "countersink_spooling 0.0" not in (await response.text()).splitlines()
