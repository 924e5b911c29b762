"""A later release opens the file of this one with a job under way: it converts the file, and nothing is lost."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from countersink import AsyncClient
from shared.sqlite.schema import newest
from tests.meta.checkout import PACKAGES, ROOT
from tests.processes.harness import Processes, processes

COUNTERS: Final = 5_000
ONE_MORE: Final = """
STEPS = (*STEPS, Step("7.8.9", "ALTER TABLE shards ADD COLUMN of_a_test INTEGER NOT NULL DEFAULT 0"))
"""

pytestmark = pytest.mark.check  # processes that can't be forked


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The sources of a release whose files have one column more."""
    folder = tmp_path / "later"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "shared" / "sqlite" / "schema.py").open("a") as schema:
        schema.write(ONE_MORE)
    return folder


def put_back(kept: Path, file: Path) -> None:
    """As docs/upgrading.md says."""
    kept.rename(file)
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


async def start_refused(started: Processes, folder: Path = ROOT) -> str:
    """What `countersink up` says when it does not start."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "countersink", "up", "--port", "0"),
        cwd=folder,
        env=started.environment | {"PYTHONPATH": str(folder)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 1, said
    return said.decode()


async def test_a_file_with_a_job_under_way_crosses_releases_and_back(tmp_path: Path, later: Path) -> None:
    names = [f"account:{number:04}" for number in range(COUNTERS)]
    file = tmp_path / "countersink.db"
    kept = tmp_path / f"countersink.db-schema-{newest()}"
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1", "COUNTERSINK_JOB_TASKS": "1"}
    newer = {"PYTHONPATH": str(later)}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        older = await started.start("up", "--port", "0")
        assert "other processes use it: stop them" in await start_refused(started, later)
        async with AsyncClient(older.url) as client:
            await client.increment_many(dict.fromkeys(names, 1), wait=60)
            await client.start_job("add", "account:", 10, id="mine")
            async with asyncio.timeout(60):
                while not (await client.job("mine")).tasks:
                    await asyncio.sleep(0.002)
            await older.end(signal.SIGKILL)
        older = await started.start("ingest", "--port", "0")  # what it accepts stays pending
        async with AsyncClient(older.url) as client:
            await client.increment("account:0000", 5, id="order-1")
            assert (await client.job("mine")).state == "running"
        assert await older.end(signal.SIGTERM) == 0
        assert not kept.exists()

        running = await started.start("up", "--port", "0", within=("env", "-C", str(later)), **newer)
        assert kept.exists()
        async with AsyncClient(running.url) as client:
            await everything_counts(client, names)
            await client.increment("later", wait=60)
        assert await running.end(signal.SIGTERM) == 0

        said = await start_refused(started)
        assert f"use Countersink 7.8.9 or later, or go back to {kept}" in said
        put_back(kept, file)
        assert (await started.command("doctor", "--trust-file")).code == 0
        running = await started.start("up", "--port", "0")
        async with AsyncClient(running.url) as client:
            await everything_counts(client, names)
            assert not (await client.get("later")).exists


async def everything_counts(client: AsyncClient, names: list[str]) -> None:
    """The job is done once, what was pending counts, and what is sent again does not."""
    async with asyncio.timeout(60):
        while (await client.job("mine")).state == "running":
            await asyncio.sleep(0.02)
    done = await client.job("mine")
    assert (done.state, done.changed, done.failed) == ("done", len(names), 0)
    assert (await client.increment("account:0000", 5, id="order-1", wait=60)).duplicates == 1
    values = {one.name: one.value async for one in client.list("account:", page=1_000)}
    assert values == dict.fromkeys(names, 11) | {"account:0000": 16}
