"""ingest --workers: they start together, are replaced when they die, and end with their parent."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest

from countersink_server.serve import workers
from deploy.processes import free_port
from shared.model.errors import CountersinkError
from shared.runtime import instruments
from shared.runtime.retry import Stop
from tests.cli.services import count, total
from tests.cli.test_serving import in_the_file
from tests.processes.harness import Processes, Running, processes


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path) as it:
        yield it


@asynccontextmanager
async def two_workers(started: Processes) -> AsyncIterator[tuple[Running, list[int]]]:
    running = await started.start("ingest", "--port", str(free_port()), "--workers", "2")
    children = running.children()
    assert len(children) == 2  # it says that it is up when they are
    yield running, children


async def gone(pids: list[int]) -> None:
    """A process that nobody has waited for is gone, too."""
    async with asyncio.timeout(60):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_they_drain_with_their_parent(started: Processes, tmp_path: Path) -> None:
    async with two_workers(started) as (running, children):
        assert running.line == (
            f"countersink ingest is up on {running.url} with 2 workers, its data in {tmp_path / 'countersink.db'}\n"
        )
        await count(running.url, 20)
        assert await running.end(signal.SIGTERM) == 0
        assert not any(map(alive, children))


async def test_a_signal_for_all_of_them_as_a_terminal_sends_it_is_no_failure(started: Processes) -> None:
    async with two_workers(started) as (running, children):
        for child in children:
            os.kill(child, signal.SIGINT)
        assert await running.end(signal.SIGINT) == 0
        assert not any(map(alive, children))


async def test_one_that_is_killed_is_replaced_and_the_other_goes_on(started: Processes) -> None:
    async with two_workers(started) as (running, (first, second)):
        os.kill(first, signal.SIGKILL)
        await gone([first])
        await count(running.url, 10)
        async with asyncio.timeout(60):
            while len(running.children()) < 2 or first in running.children():
                await asyncio.sleep(0.01)
        assert second in running.children()
        await count(running.url, 10)
        assert await total(running.url) == 20
        assert await running.end(signal.SIGTERM) == 0


async def test_they_drain_and_end_when_their_parent_is_killed(started: Processes, tmp_path: Path) -> None:
    """Their port is free then: the next one can start on it."""
    async with two_workers(started) as (running, children):
        await count(running.url, 5)
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{running.url}/v1/counters/a?ack=none") as response:
                assert response.status == 202
            await running.end(signal.SIGKILL)
        await gone(children)
        again = await started.start("up", "--port", str(running.port))
        assert again.port == running.port
        assert await again.end(signal.SIGTERM) == 0
        assert in_the_file(tmp_path) == (6, 0)


class Keeper(workers._Keeper):
    """Its workers are shell scripts."""

    def __init__(self, script: str, patience: float = 20.0) -> None:
        super().__init__(0, (), patience, check=lambda: None, metrics=[instruments.make_shared()])
        self._script = script
        self.pids: list[int] = []

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec("sh", "-c", self._script, stdout=PIPE)
        self.pids.append(process.pid)
        return process


async def test_one_that_never_gets_ready_ends_the_start() -> None:
    with pytest.raises(CountersinkError, match="a worker ended with exit code 3 before it was ready"):
        await asyncio.wait_for(Keeper("exit 3").run(Stop()), 60)


async def test_one_that_dies_again_and_again_is_started_again_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    keeper, stop = Keeper("echo up; kill -9 $$"), Stop()
    task = asyncio.create_task(keeper.run(stop))
    async with asyncio.timeout(60):
        while len(keeper.pids) < 3:
            await asyncio.sleep(0.01)
    stop.set()
    await asyncio.wait_for(task, 60)
    assert f"worker 0 (process {keeper.pids[0]}) was killed by SIGKILL and is started again" in caplog.messages


async def test_one_that_does_not_drain_is_killed_and_that_is_a_failure() -> None:
    keeper, stop = Keeper("trap '' TERM; echo up; while :; do sleep 0.1; done", patience=0.2), Stop()
    task = asyncio.create_task(keeper.run(stop))
    await asyncio.wait_for(keeper.ready.wait(), 60)
    stop.set()
    with pytest.raises(CountersinkError, match=r"did not finish within 0\.2 seconds and was killed"):
        await asyncio.wait_for(task, 60)
    assert not any(map(alive, keeper.pids))


def test_a_worker_is_started_as_its_parent_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by -m where the parent was not: that would look for our names in the folder first."""
    monkeypatch.setattr(sys, "argv", ["bin/countersink", "ingest"])
    script, module = ModuleType("__main__"), ModuleType("__main__")
    module.__spec__ = pytest.__spec__
    assert workers.command(script) == (sys.executable, "bin/countersink")
    assert workers.command(module) == (sys.executable, "-m", "countersink")
