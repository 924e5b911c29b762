"""Processes on one file whose clocks are wrong, or that stand still or die while weeks pass: nothing counts twice."""

import asyncio
import contextlib
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from countersink import AsyncClient
from tests.processes.harness import Processes, Running, count, processes, value
from tests.processes.moved_clocks import DAY, Clocks
from tests.world.scraping import metric, until

pytestmark = pytest.mark.check  # a C compiler

HOUR = 3_600.0
AT_ONCE = 2_500
"""Ids in one request. A generation takes several slices of a sweep."""
EACH = 3
"""Days between two requests."""
REQUESTS = 4
MakeClocks = Callable[[], Clocks]


class File:
    """The file, as somebody sees it who looks into it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "countersink.db"

    def do(self, statement: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=60)) as db:
            return db.execute(statement, values).fetchall()

    async def swept(self, time: Clocks) -> None:
        """Return when a flusher of these clocks has swept since this was called: it takes what expired long ago."""
        columns = "INSERT INTO receipts (key, expires, state, time) VALUES ('canary', 1, 'applied', 0)"
        await asyncio.to_thread(self.do, columns)

        async def gone() -> bool:
            time.move_all(11)  # so that nobody has to wait for the next sweep
            return not await asyncio.to_thread(self.do, "SELECT 1 FROM receipts WHERE key = 'canary'")

        await until(gone)


@pytest.mark.parametrize("ahead", [30 * DAY, 8 * DAY])
async def test_a_flusher_that_starts_with_its_clock_ahead_deletes_no_receipts(
    tmp_path: Path, clocks: MakeClocks, ahead: float
) -> None:
    wrong = clocks()
    async with processes(tmp_path, tmp_path / "log") as started:
        service, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
        async with AsyncClient(service.url) as client:
            for number in range(5):
                await client.increment("a", 1, id=f"id-{number}", wait=20)
            await flusher.end(signal.SIGTERM)
            wrong.move(real=ahead)
            await started.start("flusher", **wrong.environment)
            wrong.move_all(700)  # some minutes after its start
            await File(tmp_path).swept(wrong)
            await File(tmp_path).swept(wrong)
            for number in range(5):
                await client.increment("a", 1, id=f"id-{number}", wait=20)
        assert await value(service.url) == (5, True)


async def test_a_flusher_that_stood_still_for_longer_than_receipts_live_adds_nothing_twice(
    tmp_path: Path, clocks: MakeClocks
) -> None:
    """Its messages are gone when it wakes up, so it does not apply them, whatever receipts say."""
    time = clocks()
    settings = {"COUNTERSINK_RETENTION": "600", "COUNTERSINK_LEASE": "5", **time.environment}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        service = await started.start("ingest", "--port", "0")
        sleeper = await started.start("flusher", "--port", "0", COUNTERSINK_FLUSH_INTERVAL="60")
        await count(service.url, 9)  # without ids, whose receipts would live longer

        async def pulled() -> bool:
            return await metric(sleeper.url, "countersink_pulled_messages_total") >= 9

        async def applied() -> bool:
            return await metric(other.url, "countersink_flushes_total") >= 1 and not File(tmp_path).do(
                "SELECT 1 FROM messages"
            )

        await until(pulled)
        with time.stopped(sleeper.process.pid, 61):
            other = await started.start("flusher", "--port", "0", COUNTERSINK_FLUSH_INTERVAL="0.1")
            time.move_all(61)
            await until(applied)
            for _ in range(30):  # a process that goes by the wall clock believes it step by step
                time.move_all(HOUR)
                await File(tmp_path).swept(time)

        async def awake() -> bool:
            time.move_all(1)  # so that nobody has to wait until leases are extended
            tried = await metric(sleeper.url, "countersink_flushes_total")
            tried += await metric(sleeper.url, "countersink_flush_retries_total", why="gone")
            return tried > 0 and await metric(sleeper.url, "countersink_held_messages") == 0

        await until(awake)
        assert await value(service.url) == (9, True)


async def test_counts_by_time_keep_what_a_flusher_applied_while_its_clock_was_days_ahead(
    tmp_path: Path, clocks: MakeClocks
) -> None:
    wrong = clocks()
    windows = "=minute/2h,hour/3d,day/90d"
    async with processes(tmp_path, tmp_path / "log", COUNTERSINK_WINDOWS=windows) as started:
        service = await started.start("ingest", "--port", "0")
        await started.start("flusher", COUNTERSINK_FLUSH_INTERVAL="0.1", **wrong.environment)
        async with AsyncClient(service.url) as client, aiohttp.ClientSession() as session:
            wrong.move(real=5 * DAY)
            await client.increment("a", 2, wait=20)
            wrong.move(real=-5 * DAY)
            await client.increment("a", 1, wait=20)
            for by in ("minute", "hour", "day"):
                async with session.get(f"{service.url}/v1/counters/a/series?by={by}") as response:
                    found = await response.json()
                assert (found["total"], found["exact"]) == (3, True), found


async def test_a_set_by_a_process_whose_clock_is_days_behind_happens_once(tmp_path: Path, clocks: MakeClocks) -> None:
    behind = clocks()
    behind.move(real=-17 * DAY)
    async with processes(tmp_path, tmp_path / "log") as started:
        late = await started.start("ingest", "--port", "0", **behind.environment)
        right = await started.start("ingest", "--port", "0")
        time = clocks()
        await started.start("flusher", **time.environment)
        async with AsyncClient(late.url) as there, AsyncClient(right.url) as here:
            await here.increment("a", 5, wait=20)
            assert (await there.set("a", 0, key="once")).before == 5
            await here.increment("a", 7, wait=20)
            time.move_all(700)
            await File(tmp_path).swept(time)
            await File(tmp_path).swept(time)
            assert (await here.set("a", 0, key="once")).before == 5
        assert await value(right.url) == (7, True)


async def test_a_machine_that_was_suspended_counts_on(tmp_path: Path, clocks: MakeClocks) -> None:
    time = clocks()
    async with processes(tmp_path, tmp_path / "log", **time.environment) as started:
        service = await started.start("up", "--port", "0")
        async with AsyncClient(service.url) as client:
            await client.increment("a", 1, id="x", wait=20)
            with time.suspended(service.process.pid, 3 * DAY):
                pass
            await client.increment("a", 1, id="x", wait=20)
            await client.increment("a", 1, wait=20)
        assert await value(service.url) == (2, True)


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection is closed, or reset by a process that has not read all that it was sent."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while some := await reader.read(1_000):
            found += some
    return found


async def test_an_ingest_that_stood_still_for_weeks_counts_nothing_of_what_waited_in_its_sockets(
    tmp_path: Path, clocks: MakeClocks
) -> None:
    """Its client got no answer and went to another ingest, whose receipts are gone by now."""
    time = clocks()
    async with processes(tmp_path, tmp_path / "log", **time.environment) as started:
        sleeper, other = await started.start("ingest", "--port", "0"), await started.start("ingest", "--port", "0")
        await started.start("flusher", COUNTERSINK_FLUSH_INTERVAL="0.1")
        body = b'{"delta": 1, "id": "order"}'
        request = b"POST /v1/counters/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        reader, writer = await asyncio.open_connection("127.0.0.1", sleeper.port)
        with time.stopped(sleeper.process.pid, 0):
            writer.write(request)
            await writer.drain()
            late, its = await asyncio.open_connection("127.0.0.1", sleeper.port)  # as far as the kernel
            its.write(request)
            await its.drain()
            async with AsyncClient(other.url) as client:
                await client.increment("a", 1, id="order", wait=20)
                for _ in range(18 * 4):  # the others go on meanwhile
                    time.move_all(DAY / 4)
                    await File(tmp_path).swept(time)
                    assert (await client.get("a")).value == 1
        assert b" 202 " not in await _all_of(reader) + await _all_of(late)
        writer.close()
        its.close()
        assert await asyncio.wait_for(sleeper.process.wait(), 60) == 1
        assert "start it again" in (tmp_path / "log").read_text()
        assert await value(other.url) == (1, True)


class Scene:
    """A flusher that is killed, the clocks of all processes, and their file."""

    def __init__(self, started: Processes, time: Clocks, file: File, flusher: Running) -> None:
        self._started, self.time, self._file, self._flusher = started, time, file, flusher
        self._chance = random.Random(1)
        self._asked = 0

    async def killed(self, within: float) -> None:
        """Kill the flusher at some time within these seconds, and start it again."""
        await asyncio.sleep(self._chance.uniform(0, within))
        await self._flusher.end(signal.SIGKILL)
        self.time.move_all(6)  # so that its leases end
        self._flusher = await self._started.start("flusher")

    async def day(self) -> None:
        """Let a day pass by the file's time. A flusher knows only what passes after its first look at it."""
        for seconds, look in ((0.0, 700.0), (DAY, 11.0)):
            after = self.number("SELECT now FROM store") + int(seconds) * 1_000
            self.time.move_all(seconds)

            async def passed(after: int = after, look: float = look) -> bool:
                self.time.move_all(look)  # so that nobody has to wait for the next sweep
                return self.number("SELECT now FROM store") > after

            await until(passed)
        await self.killed(0.03)  # perhaps in the middle of this sweep

    async def settled(self) -> bool:
        self._asked += 1
        if self._asked % 50 == 0:  # slower than the leases end, else nobody would ever hold one for long enough
            self.time.move_all(1)
        return not self.number("SELECT count(*) FROM messages")

    def number(self, query: str) -> int:
        ((found,),) = self._file.do(query)
        return int(found)


async def test_ids_count_once_whenever_a_flusher_is_killed(tmp_path: Path, clocks: MakeClocks) -> None:
    time = clocks()
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "5", **time.environment}
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        service, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
        scene = Scene(started, time, File(tmp_path), flusher)

        async def send(request: int) -> None:
            items = [{"counter": "a", "delta": 1, "id": f"{request}-{one}"} for one in range(AT_ONCE)]
            async with session.post(f"{service.url}/v1/increments", json=items) as response:
                assert response.status == 202, await response.text()

        for request in range(REQUESTS):
            await asyncio.gather(send(request), scene.killed(0.2))
            for again in {request, max(request - 2, 0)}:  # at most 6 days ago
                await send(again)
            await until(scene.settled)
            for _ in range(EACH):
                await scene.day()
        assert await value(service.url) == (REQUESTS * AT_ONCE, True)
        ids = scene.number("SELECT count(*) FROM ids")
        assert AT_ONCE < ids <= REQUESTS * AT_ONCE
        for _ in range(20):
            await scene.day()
            if not scene.number("SELECT count(*) FROM ids"):
                break
        assert not scene.number("SELECT count(*) FROM ids")
        assert scene.number("SELECT min(number) FROM generations") >= 2
        assert await value(service.url) == (REQUESTS * AT_ONCE, True)
