"""A file that is taken away under a running process: it ends with a line that says so, and nothing is lost that is
still there.
"""

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest

from tests.processes.harness import Processes, Running, processes

CLIENTS = 8
ENOUGH = 50
"""Increments that are accepted before the file goes."""


async def accepted_until_it_ends(running: Running, take_away: asyncio.Event) -> int:
    """Every answer but 202 says what has happened."""
    accepted = 0

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal accepted
        while running.process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with session.post(f"{running.url}/v1/counters/a") as response:
                    said = await response.text()
                if response.status != 202:
                    assert response.status == 503
                    assert "the service's log says more" in said
                accepted += response.status == 202
            if accepted >= ENOUGH:
                take_away.set()
            await asyncio.sleep(0.005)

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client(session))
    return accepted


async def without(started: Processes, file: Path) -> int:
    """One life until the file is gone; how much was accepted in it."""
    running = await started.start("up", "--port", "0")
    take_away = asyncio.Event()
    clients = asyncio.create_task(accepted_until_it_ends(running, take_away))
    await take_away.wait()
    await asyncio.to_thread(file.rename, f"{file}.away")
    assert await asyncio.wait_for(running.process.wait(), 60) == 1
    return await clients


@pytest.mark.parametrize("companion", ["", "-wal"])
async def test_a_file_taken_away_ends_the_process_with_a_line(tmp_path: Path, companion: str) -> None:
    """What was only in the log is put into the file at the end, though the log has no name any more."""
    log, file = tmp_path / "log", tmp_path / f"countersink.db{companion}"
    async with processes(tmp_path, log, COUNTERSINK_FLUSH_INTERVAL="60") as started:
        accepted = await without(started, file)
        assert log.read_text().splitlines()[-1].startswith(f"countersink: {file} was removed or replaced")
        if companion:
            running = await started.start("up", "--port", "0")
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}/v1/counters/a") as response:
                assert (await response.json())["value"] == accepted
