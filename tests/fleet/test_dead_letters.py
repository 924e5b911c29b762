"""Poison among healthy load: the healthy are counted, the poison is set apart; when it is cured, replays that are
killed again and again count it once.
"""

import asyncio
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fleet.load import Load
from tests.fleet.pairs import Pair, message
from tests.fleet.poison import Poison
from tests.processes.harness import Processes, Running, processes

COUNTERS = ("poison:0", "poison:1")
EACH = 8
"""Increments of each of them; their deltas are powers of four, so that a total says which it holds, and how often."""
ALL = sum(4**number for number in range(EACH))
KILLS = 3
PROCESSES = (("ingest", "--port", "0"), ("ingest", "--port", "0"), ("flusher",), ("flusher",))


class Desk:
    """Somebody at the command line, and at one ingest."""

    def __init__(self, pair: Pair, started: Processes, session: aiohttp.ClientSession, ingest: Running) -> None:
        self._pair = pair
        self._started = started
        self._session = session
        self._url = ingest.url

    async def count(self) -> None:
        """The poison: every other one under an id, the rest as other publishers do."""
        for number in range(EACH):
            for counter in COUNTERS:
                if number % 2:
                    await self._pair.publish([message(counter, 4**number, f"{counter}-{number}")])
                    continue
                body = {"delta": 4**number, "id": f"id-{number}"}
                async with self._session.post(f"{self._url}/v1/counters/{counter}", json=body) as response:
                    assert response.status == 202, await response.text()

    async def reading(self, counter: str) -> dict[str, Any]:
        async with self._session.get(f"{self._url}/v1/counters/{counter}?max_age=0") as response:
            assert response.status == 200, await response.text()
            answer: dict[str, Any] = await response.json()
        return answer

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "countersink", "dlq", *arguments),
            env=self._started.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def dlq(self, *arguments: str) -> tuple[int | None, str]:
        process = await self.start(*arguments)
        out, said = await process.communicate()
        assert b"Traceback" not in said, said
        return process.returncode, out.decode()

    async def states(self) -> list[str]:
        """Of all letters that can be seen now."""
        code, out = await self.dlq("list", "--json", "--limit", "1000")
        assert code == 0
        return [json.loads(line)["state"] for line in out.splitlines()]

    async def killed_replay(self, chance: random.Random) -> None:
        """At random, or as soon as something is counted and not yet forgotten."""
        process = await self.start("replay", "--all")
        ended = asyncio.create_task(process.communicate())
        loop = asyncio.get_running_loop()
        until = loop.time() + chance.uniform(0.5, 4.0)
        while not ended.done() and loop.time() < until and not (await self.reading(COUNTERS[0]))["applied"]:
            await asyncio.sleep(0.01)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        _, said = await ended
        assert b"Traceback" not in said, said

    async def cured(self) -> None:
        """Killed, and run again until only what nobody can read is left."""
        chance = random.Random(5)
        for _ in range(KILLS):
            await self.killed_replay(chance)
        while {"dead", "applied"} & {*await self.states()} or not await self._applied():
            assert (await self.dlq("replay", "--all"))[0] in {0, 1}

    async def _applied(self) -> bool:
        """A killed replay hides what it held until its leases end."""
        return all([(await self.reading(counter))["applied"] == ALL for counter in COUNTERS])


@pytest.mark.timeout(240)
async def test_poison_is_set_apart_and_counts_once_when_it_is_cured(pair: Pair, tmp_path: Path) -> None:
    poison = Poison(pair, COUNTERS)
    why = await poison.begin()
    async with (
        processes(tmp_path, tmp_path / "log", **pair.settings, COUNTERSINK_FLUSH_INTERVAL="0.1") as started,
        aiohttp.ClientSession() as session,
    ):
        ingest, other, *flushers = await asyncio.gather(*(started.start(*one) for one in PROCESSES))
        desk = Desk(pair, started, session, other)
        load = Load(pair, session, ingest.url)
        async with load.running(clients=2):
            await desk.count()
        await load.applied()
        async with asyncio.timeout(60):
            while len({one for one in await pair.dead_letters() if b"poison" in one.data}) < EACH * len(COUNTERS):
                await asyncio.sleep(0.1)
        letters = await pair.dead_letters()
        assert {one.data for one in letters if b"poison" not in one.data} == load.rubbish
        assert all(why in one.reason or "before" in one.reason for one in letters if b"poison" in one.data), letters
        assert {(await desk.reading(counter))["applied"] for counter in COUNTERS} == {0}
        assert sorted({*await desk.states()}) == ["dead", "unreadable"]
        code, out = await desk.dlq("replay", "--all")
        assert code == 1, out
        assert f"increments: 0 counted, 0 counted before, {EACH * len(COUNTERS)} left" in out
        await poison.end()
        async with asyncio.timeout(120):
            await desk.cured()
            await desk.count()
            for counter in COUNTERS:
                while (await desk.reading(counter))["pending"]:
                    await asyncio.sleep(0.05)
        assert {(await desk.reading(counter))["value"] for counter in COUNTERS} == {ALL}
        for running in (ingest, other, *flushers):
            assert await running.end(signal.SIGTERM) == 0
    assert {one.data for one in await pair.dead_letters()} == load.rubbish
