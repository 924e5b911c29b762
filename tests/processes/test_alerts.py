"""Alerts fire when something is broken, and end when it is mended, in a real Prometheus with real processes. Its rules
are those of deploy/ with all times divided.
"""

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from deploy.processes import free_port
from tests.cli.running import run
from tests.processes.harness import Processes, processes
from tests.processes.prometheus import RULES, Prometheus, faster, prometheus
from tests.world.scraping import until

pytestmark = pytest.mark.check  # Prometheus

TIMES: Final = 150
"""Five minutes are two seconds."""
REFUSE: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'refused%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1", "COUNTERSINK_MAX_PENDING_BYTES": "3000"}
    async with processes(tmp_path, tmp_path / "log", **settings) as it:
        yield it


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(folder / "countersink.db", isolation_level=None)) as db:
        yield db


async def post(url: str, counter: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/counters/{counter}") as response:
        return response.status


async def fires(it: Prometheus, *names: str) -> None:
    async def there() -> bool:
        return await it.firing() >= {*names}

    await until(there)


async def ends(it: Prometheus, *names: str) -> None:
    async def gone() -> bool:
        return not await it.firing() & {*names}

    await until(gone)


@pytest.mark.timeout(180)
async def test_alerts_fire_when_something_is_broken_and_end_when_it_is_mended(
    started: Processes, tmp_path: Path
) -> None:
    ingest = await started.start("ingest", "--port", "0")
    flusher = await started.start("flusher", "--port", str(free_port()))
    targets = [f"127.0.0.1:{one.port}" for one in (ingest, flusher)]
    async with prometheus(tmp_path, *targets, rules=faster(RULES, TIMES)) as it:
        assert await it.number("count(up)") == 2
        for _ in range(40):  # a healthy service, at work
            assert await post(ingest.url, "a") == 202
            await asyncio.sleep(0.05)
        assert await it.firing() - {"CountersinkDiskFilling"} == set()

        await flusher.end(signal.SIGKILL)
        await fires(it, "CountersinkDown")
        assert await post(ingest.url, "a") == 202
        await fires(it, "CountersinkNothingApplied")
        for _ in range(100):
            if await post(ingest.url, "a") == 503:
                break
        refusing = asyncio.create_task(_keep_posting(ingest.url))
        await fires(it, "CountersinkOverloaded", "CountersinkErrors")
        refusing.cancel()
        await started.start("flusher", "--port", str(flusher.port))
        await ends(it, "CountersinkDown", "CountersinkNothingApplied", "CountersinkOverloaded")

        with opened(tmp_path) as db:
            db.execute(REFUSE)
            assert await post(ingest.url, "refused") == 202
            await fires(it, "CountersinkDeadLetters")
            await fires(it, "CountersinkDeadLettersKept")
            db.execute("DROP TRIGGER rule")
        replayed = await asyncio.to_thread(run, "dlq", "replay", "--all", "--data", str(tmp_path), cwd=tmp_path)
        assert replayed.code == 0, replayed
        await ends(it, "CountersinkDeadLetters", "CountersinkDeadLettersKept")

        with opened(tmp_path) as db:
            db.execute("UPDATE broker SET taken = taken + 1")  # as if one had been lost
            await fires(it, "CountersinkDrift")
            db.execute("UPDATE broker SET taken = taken - 1")
        await ends(it, "CountersinkDrift")


async def _keep_posting(url: str) -> None:
    while True:
        await post(url, "a")
