"""What the store refuses, among healthy load: it is set apart, and when it is cured replays count it once, however
often they are killed.
"""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

from tests.processes.fleet.pairs import message
from tests.processes.fleet.poison import Poison
from tests.reliability.rows import ALL, SQLITE, Row
from tests.reliability.scene import Scene

COUNTERS = ("poison:0", "poison:1")
EACH = 8
"""Increments of each of them; their deltas are powers of four, so that a total says which it holds, and how often."""
WHOLE = sum(4**number for number in range(EACH))
BURIED = 60.0
CURED = 120.0
"""Seconds until it is, at most."""


class Desk:
    """Somebody at the command line, and at an ingest of his own: whatever shares an envelope with poison is buried."""

    def __init__(self, scene: Scene, url: str) -> None:
        self._scene = scene
        self._url = url

    async def count(self) -> None:
        """The poison: every other one under an id, the rest as other publishers do."""
        for number in range(EACH):
            for counter in COUNTERS:
                if number % 2:
                    await self._scene.pair.publish([message(counter, 4**number, f"{counter}-{number}")])
                    continue
                body = {"delta": 4**number, "id": f"id-{number}"}
                status, said = await self._scene.calls.send(f"{self._url}/v1/counters/{counter}", body)
                assert status == 202, said

    async def readings(self) -> list[dict[str, Any]]:
        named = "&".join(f"name={counter}" for counter in COUNTERS)
        status, said = await self._scene.calls.get(f"{self._url}/v1/counters?max_age=0&{named}")
        assert status == 200, said
        found: list[dict[str, Any]] = json.loads(said)["counters"]
        return found

    async def applied(self) -> set[int]:
        return {reading["applied"] for reading in await self.readings()}

    async def letters(self) -> list[bytes]:
        """Of the poison, in the broker."""
        return [one.data for one in await self._scene.pair.dead_letters() if b"poison" in one.data]

    async def dlq(self, *arguments: str) -> tuple[int | None, str]:
        process = await self._start(*arguments)
        out, said = await process.communicate()
        assert b"Traceback" not in said, said
        return process.returncode, out.decode()

    async def states(self) -> set[str]:
        """Of all letters that can be seen now: a killed replay hides what it held until its leases end."""
        code, out = await self.dlq("list", "--json", "--limit", "1000")
        assert code == 0, out
        return {json.loads(line)["state"] for line in out.splitlines()}

    async def killed_replay(self) -> None:
        """At random, or as soon as something is counted and not yet forgotten."""
        process = await self._start("replay", "--all")
        ended = asyncio.create_task(process.communicate())
        until = self._scene.seconds + self._scene.chance(0.5, 4.0)
        while not ended.done() and self._scene.seconds < until and await self.applied() == {0}:
            await asyncio.sleep(0.01)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        _, said = await ended
        assert b"Traceback" not in said, said

    async def _start(self, *arguments: str) -> Process:
        command = (sys.executable, "-m", "countersink", "dlq", *arguments)
        environment = self._scene.started.environment
        return await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)


async def poisoned(scene: Scene, seconds: float) -> None:
    ingest = await scene.started.start("ingest", "--port", "0")
    await _poisoned(scene, seconds, Desk(scene, ingest.url))
    assert await ingest.end(signal.SIGTERM) == 0


async def _poisoned(scene: Scene, seconds: float, desk: Desk) -> None:
    poison = Poison(scene.pair, COUNTERS)
    why = await poison.begin()
    await desk.count()
    async with asyncio.timeout(BURIED):
        while len({*await desk.letters()}) < EACH * len(COUNTERS):
            await asyncio.sleep(0.1)
    reasons = [one.reason for one in await scene.pair.dead_letters() if b"poison" in one.data]
    assert all(why in reason or "before" in reason for reason in reasons), reasons
    assert await desk.applied() == {0}, "poison was counted"
    code, out = await desk.dlq("replay", "--all")
    assert code == 1, out
    assert f"increments: 0 counted, 0 counted before, {EACH * len(COUNTERS)} left" in out
    await poison.end()
    until = scene.seconds + seconds
    async with asyncio.timeout(CURED + seconds):
        await desk.killed_replay()
        while scene.seconds < until:
            await desk.killed_replay()
        while "dead" in await desk.states() or await desk.applied() != {WHOLE}:
            code, out = await desk.dlq("replay", "--all")
            assert code in {0, 1}, out
        await desk.count()
        while any(reading["pending"] for reading in await desk.readings()):
            await asyncio.sleep(0.05)
        while await desk.letters():
            await desk.dlq("replay", "--all")
    readings = await desk.readings()
    assert [reading["applied"] for reading in readings] == [WHOLE] * len(COUNTERS), readings


ROWS = (
    Row(
        "poisoned",
        f"the store refuses {len(COUNTERS)} counters for good, and their increments become dead letters; it is cured,"
        " `countersink dlq replay --all` gets SIGKILL again and again, and all is sent once more under the same ids",
        poisoned,
        ALL,
        smoke=(SQLITE,),
    ),
)
