"""A disk that is full, or nearly, and a folder that can't be written: 507 in time, or a line that says what to do. What
was accepted is not lost, and can be applied.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.needs import program
from tests.processes.harness import Processes, Running, processes
from tests.processes.small_disk import BLOCK, small

MIB: Final = 2**20
SMALLEST: Final = 3 * MIB
SIZE: Final = 24 * MIB
BALLAST: Final = 6 * MIB


@pytest.fixture
def mounts() -> None:
    """In a namespace of its own, a process may mount what it likes."""
    program("unshare")


def on_small_disk(folder: Path, size: int, options: str = "") -> tuple[str, ...]:
    """Runs a command that sees a small disk of its own at this folder."""
    folder.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o size={size}{options} tmpfs "$0" && exec "$@"'
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


@pytest.mark.check  # a mount
async def test_a_full_disk_is_507_and_loses_nothing(mounts: None, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    ballast = disk / "ballast"
    within = (*on_small_disk(disk, SMALLEST), "sh", "-c", f'head -c 1500000 /dev/zero > "{ballast}" && exec "$@"', "sh")
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


@pytest.mark.check  # a mount
async def test_a_read_only_folder_stops_the_start_with_a_line_that_says_what_to_do(
    mounts: None, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    async with processes(disk) as started:
        line = await first_error(started, "up", "--port", "0", within=on_small_disk(disk, SMALLEST, ",ro"))
        assert str(disk) in line
        assert "can be written" in line


@pytest.mark.check  # a mount
@pytest.mark.parametrize(
    ("first", "todo"),
    [
        (
            'umask 77; : > "$0/countersink.db"; cat /dev/zero > "$0/ballast" 2> "$0/../said"',
            "Its disk is full: free some space",
        ),
        (
            'umask 77; COUNTERSINK_EXISTING=yes "$1" "$2" "$3" provision; mount -o remount,ro "$0"',
            "whether the disk is read-only",
        ),
    ],
)
async def test_a_file_on_a_full_or_read_only_disk_is_not_to_be_replaced(
    mounts: None, tmp_path: Path, first: str, todo: str
) -> None:
    disk = tmp_path / "disk"
    async with processes(disk) as started:
        within = (*on_small_disk(disk, SMALLEST), "sh", "-c", f'{first}; exec "$@"', str(disk))
        for command in (("up", "--port", "0"), ("sweep",)):
            line = await first_error(started, *command, within=within)
            assert str(disk) in line
            assert todo in line, line


@pytest.mark.check  # a process that can't be forked
async def test_a_folder_that_is_a_file_stops_the_start_with_a_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    async with processes(file) as started:
        line = await first_error(started, "up", "--port", "0")
        assert str(file) in line


class Disk:
    """A real one where that is allowed; otherwise the processes are told that it is small."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast, self.rest = folder / "ballast", folder / "rest"
        self._mount = on_small_disk(folder, SIZE)
        self._mounted = subprocess.run([*self._mount, "true"], check=False, capture_output=True).returncode == 0
        self._first: Running | None = None

    def within(self) -> Sequence[str]:
        ballast = ("sh", "-c", f'head -c {BALLAST} /dev/zero > "{self.ballast}" && exec "$@"', "sh")
        if not self._mounted:
            told = (sys.executable, "-m", "tests.processes.small_disk", str(self.folder), str(SIZE))
            return told if self._first else (*ballast, *told)
        return self._same() if self._first else (*self._mount, *ballast)

    def seen_by(self, running: Running) -> None:
        self._first = running

    def _same(self) -> Sequence[str]:
        assert self._first is not None
        return ("nsenter", "--target", str(self._first.process.pid), "--user", "--mount")

    def _run(self, *command: str) -> str:
        inside = self._same() if self._mounted else ()
        return subprocess.run([*inside, *command], check=True, capture_output=True, text=True).stdout

    def take_all_but(self, left: int) -> None:
        """Somebody else does."""
        if self._mounted:
            blocks, size = map(int, self._run("stat", "-f", "-c", "%a %S", str(self.folder)).split())
            free = blocks * size
        else:
            free = small(self.folder, SIZE).f_bavail * BLOCK
        assert free > left
        self._run("sh", "-c", f'head -c {free - left} /dev/zero >> "{self.rest}"')

    def give_all_back(self) -> None:
        self._run("rm", str(self.ballast), str(self.rest))


def body(shape: str, number: int) -> bytes:
    """What takes most room when it is applied: ids are a receipt each, new names a shard and a config."""
    if shape == "ids":
        return b"[%b]" % b",".join(b'{"counter":"c","id":"%d.%d"}' % (number, item) for item in range(400))
    return b"[%b]" % b",".join(b'{"counter":"%b.%d.%d"}' % (b"n" * 200, number, item) for item in range(100))


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str, shape: str) -> None:
        self._session = session
        self._url = url
        self._shape = shape
        self._number = 0
        self.accepted = 0

    async def fill(self) -> None:
        """Until it is refused."""
        while self._number < 3_000:
            self._number += 1
            data = body(self._shape, self._number)
            async with self._session.post(f"{self._url}/v1/increments", data=data) as response:
                answer = await response.json()
            if response.status != 202:
                assert response.status == 507, answer
                assert "COUNTERSINK_DISK_RESERVE" in answer["detail"]
                assert int(response.headers["Retry-After"]) >= 1
                return
            self.accepted += answer["accepted"]
        raise AssertionError("it was never refused")

    async def until_ready(self, status: int) -> None:
        """Or until it is not, as the status says."""
        async with asyncio.timeout(60):
            while True:
                async with self._session.get(f"{self._url}/readyz") as response:
                    if response.status == status:
                        return
                await asyncio.sleep(0.05)

    async def pending(self) -> bool:
        async with self._session.get(f"{self._url}/v1/counters?limit=1000&max_age=0") as response:
            return any(counter["pending"] for counter in (await response.json())["counters"])

    async def until_applied(self) -> None:
        async with asyncio.timeout(60):
            while await self.pending():
                await asyncio.sleep(0.3)


@pytest.mark.parametrize("shape", ["ids", "names"])
async def test_what_was_accepted_on_a_nearly_full_disk_can_be_applied(tmp_path: Path, shape: str) -> None:
    disk = Disk(tmp_path / "disk")
    log = tmp_path / "log"
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.1"}
    async with processes(disk.folder, log, **settings) as started, aiohttp.ClientSession() as session:
        ingest = await started.start("ingest", "--port", "0", within=disk.within())
        disk.seen_by(ingest)
        client = Client(session, ingest.url, shape)
        await client.fill()  # nothing is applied: as much is pending as can be on this disk
        assert client.accepted > 1_000
        assert await total(session, ingest.url) == client.accepted
        flusher = await started.start("flusher", within=disk.within())
        await client.until_applied()
        await client.fill()
        await client.until_applied()
        assert await total(session, ingest.url) == client.accepted
        for _ in range(5):  # the log may become shorter meanwhile, which makes room
            disk.take_all_but(MIB)
            await client.until_ready(507)
            before = client.accepted
            await client.fill()
            if client.accepted == before:
                break
        assert client.accepted == before
        disk.give_all_back()
        await client.until_ready(200)
        await client.fill()
        assert client.accepted > before
        await client.until_applied()
        assert await total(session, ingest.url) == client.accepted
        assert await flusher.end(signal.SIGTERM) == 0
        assert await ingest.end(signal.SIGTERM) == 0
    assert "is full" not in log.read_text(), "the disk was full before it was said"
