"""The metrics of `ingest --workers`: each worker's own series, which a restart does not set back."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from tests.processes.harness import Processes, Running, processes
from tests.processes.prometheus import prometheus
from tests.world.scraping import Scrape, scrape, until

pytestmark = pytest.mark.check  # Prometheus

ACCEPTED = "countersink_accepted_increments_total"
START = "countersink_start_time_seconds"
RISING = '{__name__=~"(countersink|process)_.+_(total|count|sum|bucket)"}'


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, COUNTERSINK_LOG_LEVEL="ERROR") as it:
        yield it


def starts_of(found: Scrape) -> dict[str, float]:
    """When each worker started."""
    return {labels["worker"]: value for labels, value in found.all(START)}


class Load:
    """Clients that count, each over its own connections, until they are stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, clients: int) -> None:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(clients)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, number: int) -> None:
        while True:  # the requests of a session share connections, so each session finds a worker again
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with aiohttp.ClientSession() as session:
                    for _ in range(20):
                        async with session.post(f"{self._url}/v1/counters/c{number}") as response:
                            self.accepted += response.status == 202


async def total(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/counters?prefix=c&max_age=0") as response:
        return sum(one["value"] for one in (await response.json())["counters"])


async def restart(running: Running, worker: int) -> None:
    """Kill this process, and wait until another one counts in its place."""
    many = len(running.children())
    os.kill(worker, signal.SIGKILL)

    async def replaced() -> bool:
        children = running.children()
        if worker in children or len(children) != many:
            return False
        return len([*(await scrape(running.url)).all(START)]) == many

    await until(replaced)


async def test_no_counter_falls_while_workers_are_killed_under_load(started: Processes) -> None:
    running = await started.start("ingest", "--port", "0", "--workers", "2")
    load = Load(running.url)
    load.start(4)
    scrapes = [await scrape(running.url)]

    async def scrape_all() -> None:
        while True:
            scrapes.append(await scrape(running.url))
            await asyncio.sleep(0.01)

    scraping = asyncio.create_task(scrape_all())
    try:
        for worker in running.children():
            seen = len(scrapes)
            await restart(running, worker)

            async def more(seen: int = seen) -> bool:
                return len(scrapes) > seen + 20

            await until(more)
    finally:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)
        await load.stop()
    scrapes.append(last := await scrape(running.url))
    assert [after.fell(before) for before, after in pairwise(scrapes) if after.fell(before)] == []
    assert {labels["worker"] for labels, _ in last.all(ACCEPTED)} == {"0", "1"}
    assert all(value > 0 for _, value in last.all(ACCEPTED))
    assert load.accepted <= last.sum(ACCEPTED) <= await total(running.url)
    assert "_created" not in last.text


async def test_all_workers_show_the_same_and_gauges_end_with_their_process(started: Processes) -> None:
    running = await started.start("ingest", "--port", "0", "--workers", "3")
    for _ in range(20):
        found = await scrape(running.url)
        for name in ("countersink_waiting_increments", "process_resident_memory_bytes", ACCEPTED):
            assert sorted(labels["worker"] for labels, _ in found.all(name)) == ["0", "1", "2"], name
        assert [labels for labels, _ in found.all("countersink_pending_increments")] == [{}]
    before = starts_of(found)
    await restart(running, running.children()[0])
    after = starts_of(await scrape(running.url))
    assert sorted(after) == ["0", "1", "2"]
    assert sum(after[worker] != before[worker] for worker in after) == 1


async def test_prometheus_sees_no_increase_when_idle_workers_are_restarted(started: Processes, tmp_path: Path) -> None:
    running = await started.start("ingest", "--port", "0", "--workers", "2")
    await started.start("flusher")
    load = Load(running.url)
    load.start(4)

    async def enough() -> bool:
        return load.accepted > 200

    await until(enough)
    await load.stop()
    async with prometheus(tmp_path, f"127.0.0.1:{running.port}") as it:

        async def all_seen() -> bool:
            pending = await it.number("countersink_pending_increments")
            return not pending and await it.number(f"sum({ACCEPTED})") == await total(running.url)

        async def scrapes(since: float = 0.0) -> float:
            return (await it.number("sum(count_over_time(up[1h]))") or 0.0) - since

        await until(all_seen)
        accepted = await total(running.url)
        for worker in running.children():
            await restart(running, worker)
            before = await scrapes()

            async def more(before: float = before) -> bool:
                return await scrapes(before) > 20

            await until(more)
        assert await it.number(f"sum({ACCEPTED})") == accepted
        assert await it.query(f"increase({ACCEPTED}[1h]) > 0") == []
        names = [one["metric"]["__name__"] for one in await it.query(f"count by (__name__) ({RISING})")]
        assert {ACCEPTED, "process_cpu_seconds_total", "countersink_publish_seconds_bucket"} <= {*names}
        for name in names:
            assert await it.query(f"resets({name}[1h]) > 0") == [], name
        assert await it.query("ALERTS") == []
        assert await it.number("count(changes(process_start_time_seconds[1h]) > 0)") == 2
