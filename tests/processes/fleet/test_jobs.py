"""Jobs by a fleet on emulators: all kinds of them with Redis, and without it only what needs no exact reading."""

import asyncio
import signal
from pathlib import Path

import orjson
import pytest

from countersink import AsyncClient, UnavailableError
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes

COUNTERS = 450
WITHIN = 300.0
"""A limit for what hangs: where a machine pauses again and again, readings become exact after a minute."""


async def done(client: AsyncClient, job: str) -> int:
    """How many counters it has visited."""
    async with asyncio.timeout(WITHIN):
        while (now := await client.job(job)).state == "running":
            await asyncio.sleep(0.1)
    assert (now.state, now.failed) == ("done", 0)
    return now.visited


async def until_exact(client: AsyncClient) -> None:
    """A fleet that has just begun has to find out that nobody else was there."""
    async with asyncio.timeout(WITHIN):
        while not (await client.get("p:1", max_age=0)).exact:
            await asyncio.sleep(0.05)


async def exact_values(client: AsyncClient) -> dict[str, int]:
    """After a pause, the ingest may answer without Redis for a while. Then a total lacks what is not applied yet."""
    async with asyncio.timeout(WITHIN):
        while True:
            found = [one async for one in client.list("p:", page=1_000)]
            if all(one.exact for one in found):
                return {one.name: one.value for one in found}
            await asyncio.sleep(0.05)


async def test_flushers_do_jobs_of_all_kinds(on_emulators: Emulated, redis: RedisServer, tmp_path: Path) -> None:
    names = [f"p:{number:03}" for number in range(COUNTERS)]
    settings = on_emulators.settings | {"COUNTERSINK_OVERLAY": redis.url}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        ingest, flusher = await asyncio.gather(started.start("ingest", "--port", "0"), started.start("flusher"))
        async with AsyncClient(ingest.url, patience=WITHIN) as client:
            await until_exact(client)
            await client.increment_many(dict.fromkeys(names, 1), wait=WITHIN)
            await client.start_job("add", "p:", 10, id="mine")
            await flusher.end(signal.SIGKILL)
            flusher = await started.start("flusher")
            assert await done(client, "mine") == COUNTERS
            await client.increment("p:007", 5)
            export = await client.start_job("export", "p:")
            assert await done(client, export.id) == COUNTERS
            lines = b"".join([some async for some in client.export(export.id)]).splitlines()
            expected = dict.fromkeys(names, 11) | {"p:007": 16}
            assert [tuple(orjson.loads(line).values()) for line in lines] == sorted(expected.items())
            reset = await client.start_job("reset", "p:0")
            assert await done(client, reset.id) == 100
            lines = b"".join([some async for some in client.export(reset.id)]).splitlines()
            assert [orjson.loads(line) for line in lines] == [
                {"name": name, "before": expected[name]} for name in names[:100]
            ]
            assert await exact_values(client) == {name: 0 if name < "p:1" else 11 for name in names}
        for running in (ingest, flusher):
            assert await running.end(signal.SIGTERM) == 0


async def test_without_an_exact_overlay_nothing_is_reset(on_emulators: Emulated, tmp_path: Path) -> None:
    async with processes(tmp_path, tmp_path / "log", **on_emulators.settings) as started:
        ingest = await started.start("ingest", "--port", "0")
        async with AsyncClient(ingest.url, patience=0) as client:
            with pytest.raises(UnavailableError, match="COUNTERSINK_OVERLAY must be a redis"):
                await client.start_job("reset", "p:")
            assert (await client.start_job("add", "p:", 1)).state == "running"
