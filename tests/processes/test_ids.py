"""Each id counts once, though a flusher is killed again and again while weeks pass and the generations turn."""

import asyncio
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from tests.processes.harness import Processes, Running, processes
from tests.processes.moved_clocks import DAY, Clocks
from tests.processes.test_clocks import value
from tests.world.scraping import until

pytestmark = pytest.mark.check  # a C compiler

AT_ONCE = 2_500
"""Ids in one request. A generation takes several slices of a sweep."""
EACH = 3
"""Days between two requests."""
REQUESTS = 4


class Scene:
    """An ingest, a flusher that is killed, the clocks of both, and their file."""

    def __init__(self, started: Processes, time: Clocks, file: Path, service: Running, flusher: Running) -> None:
        self._started, self.time, self._file, self.service, self._flusher = started, time, file, service, flusher
        self._chance = random.Random(1)

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
        self.time.move_all(1)
        return not self.number("SELECT count(*) FROM messages")

    def number(self, query: str) -> int:
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=60)) as db:
            ((found,),) = db.execute(query).fetchall()
            return int(found)


async def test_ids_count_once_whenever_a_flusher_is_killed(tmp_path: Path, clocks: Callable[[], Clocks]) -> None:
    time = clocks()
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "5", **time.environment}
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        service, flusher = await started.start("ingest", "--port", "0"), await started.start("flusher")
        scene = Scene(started, time, tmp_path / "countersink.db", service, flusher)

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
