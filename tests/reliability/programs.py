"""SIGKILL of programs that count with `countersink.Client`, of the service, and of both at the same moment."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from tests.processes.fleet.calls import Item
from tests.processes.fleet.pairs import Emulated
from tests.reliability.kills import PAUSE, again
from tests.reliability.rows import CLOUD, SQLITE, Row
from tests.reliability.scene import Scene

EACH: Final = 2
"""Programs at each ingest, and on the topic."""
MOST: Final = 8
"""Increments between two flushes."""
WITHIN: Final = 60.0
"""Seconds until a program is told: longer than any kill, and the start that follows it."""

# It is told in one of two ways: `flush` returns True, or `increment` returns.
PROGRAM: Final = """
import json, sys
from countersink import Client

counters = Client(sys.argv[1], interval=0.02, patience=60)
for line in sys.stdin:
    waits, items = json.loads(line)
    for name, delta, id in items:
        if waits:
            counters.increment(name, delta, id=id)
        else:
            counters.incr(name, delta, id)
    print("told" if counters.flush(60) else "late", counters.dropped, flush=True)
"""


class Program:
    """One at a time. What it was told is accepted; what it was not told may count, or be missing."""

    def __init__(self, scene: Scene, url: str) -> None:
        self._scene = scene
        self._url = url
        self._topic = url.startswith("pubsub:")
        self._turn = 0
        self._process: Process | None = None

    async def run(self) -> None:
        """Count, and begin anew whenever it was killed, until the task is cancelled."""
        try:
            while True:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", PROGRAM, self._url),
                    env=self._scene.started.environment,
                    stdin=PIPE,
                    stdout=PIPE,
                )
                while await self._count(self._process):
                    await asyncio.sleep(self._scene.row.clients.pace)
                await self._process.wait()
        finally:
            if self._process:
                self.kill()
                await self._process.wait()

    def kill(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()

    async def _count(self, process: Process) -> bool:
        """Whether it told; otherwise it is dead."""
        assert process.stdin
        assert process.stdout
        self._turn += 1
        waits = not self._topic and self._scene.random.random() < 0.2
        items = [self._scene.calls.truths.next(self._scene.random.randrange(1_000_000)) for _ in range(MOST)]
        ids = [f"{id(self)}:{self._turn}:{number}" if number % 2 else None for number in range(MOST)]
        told = [[counter, delta, id_] for (counter, _, delta), id_ in zip(items, ids, strict=True)]
        try:
            process.stdin.write(json.dumps([waits, told]).encode() + b"\n")
            async with asyncio.timeout(WITHIN):
                line = await process.stdout.readline()
        except OSError:
            return False
        if not line.endswith(b"\n"):
            return False
        with self._scene.calls.judged():
            assert line == b"told 0\n", f"a program was told: {line.decode()}"
        self._answered(items)
        return True

    def _answered(self, items: list[Item]) -> None:
        self._scene.calls.answered(items)
        if self._topic:  # no reading knows of it before it is applied
            for counter, bit, _ in items:
                self._scene.calls.published[counter] = self._scene.calls.published.get(counter, 0) | bit


async def both(scene: Scene, seconds: float) -> None:
    urls = [slot.url for slot in scene.ingests]
    if isinstance(scene.pair, Emulated):
        place = scene.pair.pubsub.place
        urls.append(f"pubsub://{place.project}/{place.topic_id}")
    programs = [Program(scene, url) for url in urls * EACH]
    tasks = [asyncio.create_task(program.run()) for program in programs]
    try:
        until = scene.seconds + seconds
        while scene.seconds < until:
            await asyncio.sleep(scene.chance(*PAUSE))
            kind = scene.random.choice(("program", "service", "both"))
            if kind != "service":
                scene.random.choice(programs).kill()
            if kind != "program":
                await again(scene.pick(scene.slots))
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


ROWS = (
    Row(
        "programs-killed",
        "SIGKILL of programs that count with `Client`, of processes of the service, and of both at the same moment",
        both,
        (SQLITE, CLOUD),
        smoke=(SQLITE,),
        long=60.0,
    ),
)
