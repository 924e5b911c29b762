"""An application of the published sharded counter and a fleet of ours count on the same entities at the same time."""

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.emulators.application import Run, application_on, get_count, increase_shards, increment
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes

THEIRS = 8
"""Increments of each of two threads of the application, per counter."""
OURS = 10
"""What each of our increments adds."""
COUNTERS = ("one", "other")
MOST_SHARDS = 40
SETTINGS = {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}


@dataclass
class Sides:
    """Who increments, and what was answered to ours."""

    application: Run
    session: aiohttp.ClientSession
    url: str
    answered: Counter[str] = field(default_factory=Counter)
    done: bool = False

    async def at_once(self) -> None:
        """The application's first look makes the configs: of 20 shards, as it has them."""
        for name in COUNTERS:
            assert await asyncio.to_thread(self.application, get_count, name) == 0
        await asyncio.gather(self._until_done(), *(self._ours(name) for name in COUNTERS))

    async def _until_done(self) -> None:
        await asyncio.gather(self._theirs(), self._theirs(), self._growth())
        self.done = True

    async def _theirs(self) -> None:
        for _ in range(THEIRS):
            for name in COUNTERS:
                await asyncio.to_thread(self.application, increment, name)

    async def _ours(self, name: str) -> None:
        while not self.done:
            async with self.session.post(f"{self.url}/v1/counters/{name}", json={"delta": OURS}) as response:
                assert response.status == 202, await response.text()
            self.answered[name] += OURS
            await asyncio.sleep(0.02)

    async def _growth(self) -> None:
        """Each side asks for more than the other has, in turn; and once for less."""
        for number in range(22, MOST_SHARDS - 1, 4):
            await asyncio.to_thread(self.application, increase_shards, "one", number)
            assert await put_shards(self.session, self.url, "one", number + 2) == number + 2
        assert await put_shards(self.session, self.url, "one", 3) == MOST_SHARDS


@pytest.mark.timeout(120)
async def test_an_application_of_the_published_counter_and_a_fleet_read_one_total(
    on_emulators: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = on_emulators
    with application_on(pair.datastore, monkeypatch) as application:
        async with (
            processes(tmp_path, tmp_path / "log", **pair.settings, **SETTINGS) as started,
            aiohttp.ClientSession() as session,
        ):
            ingest, *flushers = await asyncio.gather(
                *(started.start(*arguments) for arguments in (("ingest", "--port", "0"), ("flusher",), ("flusher",)))
            )
            sides = Sides(application, session, ingest.url)
            await sides.at_once()
            for name, shards in zip(COUNTERS, (MOST_SHARDS, 20), strict=True):
                total = sides.answered[name] + 2 * THEIRS
                assert await at_rest(session, ingest.url, name, total) == shards
                assert await asyncio.to_thread(application, get_count, name) == total
            for running in (ingest, *flushers):
                assert await running.end(signal.SIGTERM) == 0
        assert await pair.left() == 0
    assert sides.answered.total() > 10 * OURS


async def put_shards(session: aiohttp.ClientSession, url: str, name: str, shards: int) -> int:
    """How many there are then."""
    async with session.put(f"{url}/v1/counters/{name}/shards", json={"shards": shards}) as response:
        answer: dict[str, Any] = await response.json()
    assert response.status == 200, answer
    return int(answer["shards"])


async def at_rest(session: aiohttp.ClientSession, url: str, name: str, total: int) -> int:
    """Wait until all is applied; the number of shards."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(f"{url}/v1/counters/{name}?max_age=0") as response:
                reading: dict[str, Any] = await response.json()
            if response.status == 200:
                assert reading["value"] <= total, reading
                if reading["value"] == total and not reading["pending"]:
                    return int(reading["shards"])
            await asyncio.sleep(0.05)
