"""Metrics of processes, also as a real Prometheus reads them: whether a flusher runs and how busy it is, the series of
each worker, which no restart sets back, and totals of counters, with the job and the queries of docs/grafana.md. Alerts
fire when something is broken, and end when it is mended: by the rules of deploy/ with all times divided.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from deploy.processes import free_port
from tests.cli.running import run
from tests.http.service import running
from tests.meta.checkout import ROOT
from tests.processes.harness import Processes, Running, count, processes
from tests.processes.prometheus import RULES, Prometheus, faster, prometheus
from tests.world.scraping import Scrape, scrape, until

PENDING = "countersink_pending_increments"
OLDEST = "countersink_oldest_pending_seconds"
BUSY = "countersink_flusher_busy_seconds_total"
ACCEPTED = "countersink_accepted_increments_total"
START = "countersink_start_time_seconds"
RISING = '{__name__=~"(countersink|process)_.+_(total|count|sum|bucket)"}'
PAGE: Final = (ROOT / "docs" / "grafana.md").read_text()
QUERIES: Final = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy" / "grafana" / "counters.json").read_text())


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, COUNTERSINK_LOG_LEVEL="ERROR") as it:
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
    with opened(tmp_path) as db:
        db.execute("BEGIN IMMEDIATE")
        await shows(BUSY, 1)
    await shows("countersink_applied_increments_total", 1)

    async def idle() -> bool:
        before = (await scrape(flusher.url)).sum(BUSY)
        await asyncio.sleep(1)
        return (await scrape(flusher.url)).sum(BUSY) - before < 0.2

    await until(idle)  # a machine that pauses makes it look busy once


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


@pytest.mark.check
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
            await until(lambda seen=seen: len(scrapes) > seen + 20)  # type: ignore[misc] # a lambda of the loop
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


@pytest.mark.check
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


@pytest.mark.check  # Prometheus
async def test_prometheus_sees_no_increase_when_idle_workers_are_restarted(started: Processes, tmp_path: Path) -> None:
    running = await started.start("ingest", "--port", "0", "--workers", "2")
    await started.start("flusher")
    load = Load(running.url)
    load.start(4)
    await until(lambda: load.accepted > 200)
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


@pytest.mark.check  # Prometheus
async def test_prometheus_reads_what_was_counted(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (job,) = yaml.safe_load(found[1])["scrape_configs"]
    job["scrape_interval"] = job["scrape_timeout"] = "200ms"
    async with running(tmp_path) as service:
        for name, delta in (("page:home", 12), ("page:about", 5), ("other", 7)):
            await service.incr(name, b'{"delta": %d}' % delta)
        job["static_configs"][0]["targets"] = [service.url.removeprefix("http://")]
        async with prometheus(tmp_path, "it", scrapes=json.dumps([job])) as server:

            async def all_of_it() -> bool:
                totals = await server.query("countersink_counter_value")
                return {one["metric"]["name"]: one["value"][1] for one in totals} == {
                    "page:home": "12",
                    "page:about": "5",
                }

            await until(all_of_it)
            await service.incr("page:home")
            await until(lambda: _is(server, 'countersink_counter_value{name="page:home"}', 13))
            assert await server.number("countersink_counter_values_exact") == 1
            assert len(QUERIES) == 3
            panels = [panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]]
            for query in QUERIES + panels:
                known = query.replace("$__rate_interval", "1m").replace("$name", ".*")
                await until(partial(_is_there, server, known))


async def _is(server: Any, query: str, value: float) -> bool:
    return bool(await server.number(query) == value)


async def _is_there(server: Any, query: str) -> bool:
    return await server.number(query) is not None


TIMES: Final = 150
"""Five minutes are two seconds."""
REFUSE: Final = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'refused%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)


@pytest.fixture
async def hurried(tmp_path: Path) -> AsyncIterator[Processes]:
    """With little room for what waits."""
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


@pytest.mark.check  # Prometheus
@pytest.mark.timeout(180)
async def test_alerts_fire_when_something_is_broken_and_end_when_it_is_mended(
    hurried: Processes, tmp_path: Path
) -> None:
    ingest = await hurried.start("ingest", "--port", "0")
    flusher = await hurried.start("flusher", "--port", str(free_port()))
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
        await hurried.start("flusher", "--port", str(flusher.port))
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
