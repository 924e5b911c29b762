"""Jobs whose workers are killed: each counter has it once, and the accounts agree."""

import asyncio
import json
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from countersink import AsyncClient
from flusher.cleanup import id_of
from tests.processes.harness import processes

COUNTERS = 10_000
LIVES = 4


async def test_a_job_is_done_once_whoever_is_killed(tmp_path: Path) -> None:
    names = [f"account:{number:05}" for number in range(COUNTERS)]
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1", "COUNTERSINK_JOB_TASKS": "1"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        service = await started.start("ingest", "--port", "0")
        flushers = [await started.start("flusher") for _ in range(2)]
        async with AsyncClient(service.url) as client:
            await client.increment_many(dict.fromkeys([*names, "other"], 1), wait=30)
            await client.start_job("add", "account:", 10, id="mine")
            killed = 0
            while killed < LIVES and (now := await client.job("mine")).state == "running":
                async with asyncio.timeout(60):
                    while (later := await client.job("mine")).tasks < now.tasks + 2 and later.state == "running":
                        await asyncio.sleep(0.002)
                for flusher in flushers:
                    await flusher.end(signal.SIGKILL)
                killed += 1
                flushers = [await started.start("flusher")]
                if killed == 1:
                    assert (await client.start_job("add", "account:", 10, id="mine")).delta == 10
            assert killed > 1
            async with asyncio.timeout(60):
                while (await client.job("mine")).state == "running":
                    await asyncio.sleep(0.02)
            done = await client.job("mine")
            assert (done.state, done.visited, done.changed, done.failed) == ("done", COUNTERS, COUNTERS, 0)
            values = {one.name: one.value async for one in client.list("", page=1_000)}
        assert values == dict.fromkeys(names, 11) | {"other": 1}
        for arguments in (("audit",), ("map", "--prefix", "account:", "--export", str(tmp_path / "export"))):
            ended = await started.command(*arguments)
            assert ended.code == 0, ended
        lines = [json.loads(line) for line in (tmp_path / "export").read_text().splitlines()]
        assert [(line["name"], line["value"]) for line in lines] == [(name, 11) for name in names]


async def test_what_a_reset_takes_away_is_in_its_result_whoever_is_killed(tmp_path: Path) -> None:
    """While everybody counts: what was taken away and what is left is all that was counted."""
    names = [f"sales:{number:04}" for number in range(COUNTERS // 2)]
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1", "COUNTERSINK_JOB_TASKS": "2"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        service = await started.start("ingest", "--port", "0")
        flusher = await started.start("flusher")
        async with AsyncClient(service.url) as client:
            counted = len(names)
            await client.increment_many(dict.fromkeys(names, 1), wait=30)
            await client.start_job("reset", "sales:", id="day")
            killed = 0
            while (now := await client.job("day")).state == "running":
                await client.increment_many(dict.fromkeys(names[killed::7], 1))
                counted += len(names[killed::7])
                if killed < LIVES and now.tasks >= killed:
                    await flusher.end(signal.SIGKILL)
                    killed += 1
                    flusher = await started.start("flusher")
            assert killed > 1
            await client.increment("other", wait=30)
            lines = b"".join([some async for some in client.export("day")]).splitlines()
            taken = [json.loads(line) for line in lines]
            left = [one.value async for one in client.list("sales:", page=1_000)]
        assert [line["name"] for line in taken] == names
        assert sum(line["before"] for line in taken) + sum(left) == counted


async def test_old_counters_expire_by_one_job_a_day_whoever_is_killed(tmp_path: Path) -> None:
    """While some of them are counted again: what it took away and what is left is all that was counted."""
    names = [f"page:{number:04}" for number in range(COUNTERS // 5)]
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1", "COUNTERSINK_JOB_TASKS": "2"}
    daily = {"COUNTERSINK_EXPIRE": "page:=400d"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        service = await started.start("ingest", "--port", "0")
        flusher = await started.start("flusher")
        async with AsyncClient(service.url) as client:
            await client.increment_many(dict.fromkeys([*names, "other"], 1), wait=30)
            with closing(sqlite3.connect(tmp_path / "countersink.db", timeout=60)) as db, db:
                db.execute("UPDATE shards SET updated = updated - 401 * 86400000")
            await client.increment_many(dict.fromkeys(names[::5], 1), wait=30)
            counted = len(names) + len(names[::5])
            await flusher.end(signal.SIGKILL)
            id_ = id_of("page:", datetime.now(UTC).date().isoformat())
            fleet = [await started.start("flusher", **daily) for _ in range(2)]
            async with asyncio.timeout(120):
                while not published(tmp_path):
                    await asyncio.sleep(0.01)
                for _ in range(LIVES):
                    await fleet.pop(0).end(signal.SIGKILL)
                    await client.increment_many(dict.fromkeys(names[::7], 1))
                    counted += len(names[::7])
                    fleet.append(await started.start("flusher", **daily))
                while (await client.job(id_)).state == "running":
                    await asyncio.sleep(0.02)
            assert (await client.job(id_)).state == "done"
            await client.increment("other", wait=30)
            ids = found(tmp_path, "SELECT id FROM jobs")  # two at midnight
            lines = [line for one in ids async for some in client.export(one) for line in some.splitlines()]
            taken = [json.loads(line) for line in lines]
            left = {one.name: one.value async for one in client.list("", page=1_000)}
        assert {one[:-10] for one in ids} == {id_[:-10]}
        assert {line["name"] for line in taken} <= {*names} - {*names[::5]}
        assert len(taken) > len(names) // 2
        assert left.pop("other") == 2
        assert sum(line["before"] for line in taken) + sum(left.values()) == counted


def found(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "countersink.db", timeout=60)) as db:
        return [value for (value,) in db.execute(query)]


def pages_done(folder: Path) -> int:
    """Of the only job."""
    return int(*found(folder, "SELECT coalesce(max(tasks), 0) FROM jobs"))


def published(folder: Path) -> bool:
    """Whether the job's first task waits or is done. If the process is killed before, the job begins an hour later."""
    return found(folder, "SELECT count(*) FROM tasks") != [0] or pages_done(folder) > 0


async def test_a_process_that_does_a_job_alone_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    names = [f"account:{number:05}" for number in range(COUNTERS // 2)]
    async with processes(tmp_path, tmp_path / "log", COUNTERSINK_FLUSH_INTERVAL="0.05") as started:
        service = await started.start("up", "--port", "0")
        async with AsyncClient(service.url) as client:
            await client.increment_many(dict.fromkeys(names, 1), wait=30)
        assert await service.end(signal.SIGTERM) == 0
        command = ("map", "--prefix", "", "--add", "10", "--job", "mine")
        for least in (1, 8):  # pages that are done when it is killed
            alone = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "countersink", *command, "--concurrency", "1"),
                env=started.environment,
                stderr=asyncio.subprocess.DEVNULL,
            )
            while pages_done(tmp_path) < least:
                await asyncio.sleep(0.005)
            alone.kill()
            assert await alone.wait() == -signal.SIGKILL
        assert (await started.command(*command)).code == 0
        service = await started.start("up", "--port", "0")
        async with AsyncClient(service.url) as client:
            assert {one.name: one.value async for one in client.list("", page=1_000)} == dict.fromkeys(names, 11)
            assert (await client.job("mine")).changed == len(names)
