"""A disk that is nearly full: refused in time, so that what was accepted can still be applied; and over by itself."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.processes.harness import Running, processes
from tests.processes.small_disk import BLOCK, small
from tests.processes.test_disk import total

MIB: Final = 2**20
SIZE: Final = 24 * MIB
BALLAST: Final = 6 * MIB


class Disk:
    """A real one where that is allowed; otherwise the processes are told that it is small."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast, self.rest = folder / "ballast", folder / "rest"
        folder.mkdir()
        self._mounted = subprocess.run([*_MOUNT, str(folder), "true"], check=False, capture_output=True).returncode == 0
        self._first: Running | None = None

    def within(self) -> Sequence[str]:
        ballast = ("sh", "-c", f'head -c {BALLAST} /dev/zero > "{self.ballast}" && exec "$@"', "sh")
        if not self._mounted:
            told = (sys.executable, "-m", "tests.processes.small_disk", str(self.folder), str(SIZE))
            return told if self._first else (*ballast, *told)
        return self._same() if self._first else (*_MOUNT, str(self.folder), *ballast)

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


_MOUNT: Final = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    f'mount -t tmpfs -o size={SIZE} tmpfs "$0" && exec "$@"',
)


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
