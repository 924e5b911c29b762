"""Metrics tell whether a flusher runs, and how busy it is."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.processes.harness import Processes, count, processes
from tests.world.scraping import scrape, until

PENDING = "countersink_pending_increments"
OLDEST = "countersink_oldest_pending_seconds"
BUSY = "countersink_flusher_busy_seconds_total"


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path) as it:
        yield it


async def test_what_no_flusher_applies_grows_old_and_one_flusher_applies_it(started: Processes) -> None:
    ingest = await started.start("ingest", "--port", "0", "--workers", "2")
    found = await scrape(ingest.url)
    assert [found.sum(PENDING), found.sum(OLDEST)] == [0, 0]
    await count(ingest.url, 3)

    async def old() -> bool:
        found = await scrape(ingest.url)
        assert [*found.all(PENDING)] == [({}, 3)]
        assert [labels for labels, _ in found.all(OLDEST)] == [{}]
        return found.sum(OLDEST) > 1.5

    await until(old)
    flusher = await started.start("flusher", "--port", "0")

    async def applied() -> bool:
        found = await scrape(flusher.url)
        return (found.sum(PENDING), found.sum(OLDEST)) == (0, 0) and found.sum(BUSY) > 0

    await until(applied)
    assert (await scrape(ingest.url)).sum(OLDEST) == 0


async def test_a_flusher_that_waits_for_its_store_is_busy_and_an_idle_one_is_not(
    started: Processes, tmp_path: Path
) -> None:
    """The write lock of the file is held while the flusher has a message, so its commit waits."""
    flusher = await started.start("flusher", "--port", "0")
    ingest = await started.start("ingest", "--port", "0")

    async def shows(name: str, least: float) -> None:
        async def shown() -> bool:
            return (await scrape(flusher.url)).sum(name) >= least

        await until(shown)

    await count(ingest.url)
    await shows("countersink_pulled_messages_total", 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "countersink.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        await shows(BUSY, 1)
    await shows("countersink_applied_increments_total", 1)

    async def idle() -> bool:
        before = (await scrape(flusher.url)).sum(BUSY)
        await asyncio.sleep(1)
        return (await scrape(flusher.url)).sum(BUSY) - before < 0.2

    await until(idle)  # a machine that pauses makes it look busy once
