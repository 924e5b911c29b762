"""make up-emulators: the whole product on the emulators, of which nothing is left whatever ends it."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.emulators import FLUSHERS, WORKERS
from tests.cli.running import environment
from tests.needs import program

LONGEST = 100.0


class Up:
    """It runs; what it said so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said = ""

    async def until(self, part: str) -> None:
        assert self.process.stdout
        async with asyncio.timeout(LONGEST):
            while part not in self.said:
                line = (await self.process.stdout.readline()).decode()
                assert line, f"it ended: {self.said}"
                self.said += line

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.said)
        assert match, self.said
        return match[1]

    def descendants(self) -> set[int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(pids: set[int]) -> None:
    async with asyncio.timeout(60):
        while any(map(alive, pids)):
            await asyncio.sleep(0.1)


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    for tool in ("gcloud", "java"):
        program(tool)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.emulators", "--port", "0"),
        env=environment(),
        stdout=PIPE,
    )
    one = Up(process)
    try:
        yield one
    finally:
        left = one.descendants()
        if process.returncode is None:
            process.kill()
            await process.wait()
        await gone(left)


@pytest.mark.timeout(240)
async def test_it_counts_what_is_sent_and_what_is_published_sets_it_and_ends_on_a_signal(up: Up) -> None:
    await up.until("Ctrl-C drains it")
    url = up.found(r"curl -X POST (http://\S+)")
    pubsub = up.found(r"OVERRIDES_PUBSUB=(http://\S+?)/ ")
    project, topic_id = up.found(r"--project=(\S+)"), up.found(r"topics publish (\S+)")
    topic = f"projects/{project}/topics/{topic_id}"
    async with aiohttp.ClientSession() as session:
        async with session.post(url) as response:
            assert response.status == 202
        foreign = {"messages": [{"attributes": {"counter": "visits", "delta": "2"}}]}
        async with session.post(f"{pubsub}/v1/{topic}:publish", json=foreign) as response:
            assert response.status == 200
        async with asyncio.timeout(LONGEST):
            reading: dict[str, Any] = {}
            while reading.get("applied") != 3 or not reading["exact"]:
                async with session.get(url, params={"max_age": "0"}) as response:
                    reading = await response.json()
                await asyncio.sleep(0.1)
        async with session.get(url.partition("/v1/")[0] + "/v1/fleet") as response:
            fleet = await response.json()
        assert fleet["whole"]
        assert [one["state"] for one in fleet["ingests"]] == ["joined"] * WORKERS
        assert [one["state"] for one in fleet["flushers"]] == ["at work"] * FLUSHERS
        async with session.put(url, json={"value": 40}) as response:
            assert (response.status, await response.json()) == (200, {"name": "visits", "before": 3, "after": 40})
        for _ in range(2):
            async with session.get(url, params={"max_age": "60"}) as response:
                assert (await response.json())["value"] == 40
    everything = up.descendants()
    assert len(everything) > 10
    up.process.send_signal(signal.SIGINT)
    await up.until("everything has ended")
    async with asyncio.timeout(LONGEST):
        assert await up.process.wait() == 0
    await gone(everything)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("word", "number"), [("starting", signal.SIGTERM), ("starting", signal.SIGKILL), (": made", signal.SIGTERM)]
)
async def test_nothing_is_left_whenever_it_ends(up: Up, word: str, number: int) -> None:
    await up.until(word)
    async with asyncio.timeout(LONGEST):
        while not (everything := up.descendants()):
            await asyncio.sleep(0.01)
    up.process.send_signal(number)
    async with asyncio.timeout(LONGEST):
        code = await up.process.wait()
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    await gone(everything)


@pytest.mark.parametrize("tool", ["gcloud", "java"])
async def test_what_is_missing_is_one_line(tmp_path: Path, tool: str) -> None:
    for name in {"gcloud", "java"} - {tool}:
        (tmp_path / name).symlink_to("/bin/true")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.emulators"),
        env=os.environ | {"PATH": str(tmp_path)},
        stderr=PIPE,
    )
    async with asyncio.timeout(LONGEST):
        _, said = await process.communicate()
    assert process.returncode == 1
    (line,) = said.decode().splitlines()
    assert line.startswith(f"up-emulators: {tool} is missing: install ")
