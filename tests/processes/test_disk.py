"""A disk that is full, and a folder that can't be written: 507 or a line that says what to do; nothing is lost."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.needs import program
from tests.processes.harness import Processes, Running, processes

pytestmark = pytest.mark.check  # a mount

SIZE = "3m"


@pytest.fixture
def mounts() -> None:
    """In a namespace of its own, a process may mount what it likes."""
    program("unshare")


def on_small_disk(folder: Path, options: str = "") -> tuple[str, ...]:
    """Runs a command that sees a small disk of its own at this folder."""
    folder.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o size={SIZE}{options} tmpfs "$0" && exec "$@"'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder))


async def fill(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Send batches, then single increments, until they are refused; how many were accepted, and what a refusal says."""
    accepted = 0
    for size in (50, 1):
        for number in range(4000):
            body = [{"counter": f"{size}-{number}-{k}-{'x' * 200}"} for k in range(size)]
            async with session.post(f"{url}/v1/increments", json=body) as response:
                answer = await response.json()
            if response.status != 202:
                assert response.status == 507, answer
                assert response.headers["Content-Type"] == "application/problem+json"
                break
            accepted += answer["accepted"]
        else:
            raise AssertionError("the disk was never full")
    return accepted, answer["detail"]


async def fill_until_not_ready(session: aiohttp.ClientSession, url: str) -> int:
    """A checkpoint may have made room again: then that is filled, too."""
    accepted = 0
    while True:
        async with session.get(f"{url}/readyz") as response:
            if response.status == 507:
                return accepted
        accepted += (await fill(session, url))[0]


async def accept_one(session: aiohttp.ClientSession, url: str) -> None:
    """The disk is looked at a few times a second."""
    async with asyncio.timeout(60):
        while True:
            async with session.post(f"{url}/v1/counters/after") as response:
                if response.status == 202:
                    return
                assert response.status == 507
            await asyncio.sleep(0.05)


async def total(session: aiohttp.ClientSession, url: str) -> int:
    """Of all counters, over all pages."""
    value = 0
    token = ""
    while True:
        async with session.get(f"{url}/v1/counters?limit=1000&page_token={token}") as response:
            answer = await response.json()
        value += sum(int(counter["value"]) for counter in answer["counters"])
        token = answer["next_page_token"] or ""
        if not token:
            return value


async def free_a_little(running: Running, ballast: Path) -> None:
    """Inside the namespace of the process."""
    remove = await asyncio.create_subprocess_exec(
        "nsenter", "--target", str(running.process.pid), "--user", "--mount", "rm", str(ballast)
    )
    assert await remove.wait() == 0


async def test_a_full_disk_is_507_and_loses_nothing(mounts: None, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    ballast = disk / "ballast"
    within = (*on_small_disk(disk), "sh", "-c", f'head -c 1500000 /dev/zero > "{ballast}" && exec "$@"', "sh")
    async with processes(disk, COUNTERSINK_FLUSH_INTERVAL="60") as started, aiohttp.ClientSession() as session:
        running = await started.start("up", "--port", "0", within=within)
        accepted, detail = await fill(session, running.url)
        assert "free some space" in detail
        assert accepted > 0
        assert await total(session, running.url) == accepted
        accepted += await fill_until_not_ready(session, running.url)
        async with session.get(f"{running.url}/healthz") as response:
            assert response.status == 200
        await free_a_little(running, ballast)
        await accept_one(session, running.url)
        assert await total(session, running.url) == accepted + 1
        assert await running.end(signal.SIGTERM) == 0


async def first_error(started: Processes, *arguments: str, within: tuple[str, ...] = ()) -> str:
    """What a start that fails says, in one line."""
    process = await asyncio.create_subprocess_exec(
        *within,
        sys.executable,
        "-m",
        "countersink",
        *arguments,
        env=started.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    lines = said.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


async def test_a_read_only_folder_stops_the_start_with_a_line_that_says_what_to_do(
    mounts: None, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    async with processes(disk) as started:
        line = await first_error(started, "up", "--port", "0", within=on_small_disk(disk, ",ro"))
        assert str(disk) in line
        assert "can be written" in line


async def test_a_folder_that_is_a_file_stops_the_start_with_a_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    async with processes(file) as started:
        line = await first_error(started, "up", "--port", "0")
        assert str(file) in line
