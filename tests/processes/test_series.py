"""Counts by time of many counters while processes are killed: each series is exact, and has what was accepted."""

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.processes.harness import processes

COUNTERS = 600
IN_A_BATCH = 100
ROUNDS = 3
NAMES = [f"page:{number:05}" for number in range(COUNTERS)]


async def accept(session: aiohttp.ClientSession, urls: Sequence[str], deltas: Mapping[str, int], key: str) -> None:
    """Send it until it is accepted, by any of them: some may be away."""
    asked: dict[str, Any] = {"json": {"counters": deltas}, "headers": {"Idempotency-Key": key}}
    async with asyncio.timeout(60):
        for url in itertools.cycle(urls):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"{url}/v1/increments", timeout=aiohttp.ClientTimeout(5), **asked) as answer:
                    if answer.status == 202:
                        return
            await asyncio.sleep(0.01)


async def series(session: aiohttp.ClientSession, url: str, name: str, query: str) -> Any:
    async with session.get(f"{url}/v1/counters/{name}/series?{query}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_each_series_is_exact_whoever_is_killed(tmp_path: Path) -> None:
    settings = {
        "COUNTERSINK_FLUSH_INTERVAL": "0.05",
        "COUNTERSINK_LEASE": "1",
        "COUNTERSINK_WINDOWS": "page:=minute/2d,hour/90d",
    }
    begun = datetime.now(UTC).replace(second=0, microsecond=0)
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingest = await started.start("ingest", "--port", "0")
        flusher = await started.start("flusher")
        for number, begin in itertools.product(range(ROUNDS), range(0, COUNTERS, IN_A_BATCH)):
            deltas = dict.fromkeys(NAMES[begin : begin + IN_A_BATCH], 1)
            accepted = asyncio.create_task(accept(session, [ingest.url], deltas, f"{number}-{begin}"))
            if begin == COUNTERS // 2:
                await flusher.end(signal.SIGKILL)
                await ingest.end(signal.SIGKILL)
                ingest = await started.start("ingest", "--port", str(ingest.port))
                flusher = await started.start("flusher")
            await accepted
        early = await series(session, ingest.url, NAMES[-1], "by=hour")
        is_over = datetime.now(UTC).hour != begun.hour  # of an hour that is over, nothing may be pending
        assert (early["total"], early["exact"] or is_over) == (ROUNDS, True)
        async with asyncio.timeout(60):
            while (await _pending(session, ingest.url)) != 0:
                await asyncio.sleep(0.1)
        asked = f"by=minute&from={begun:%Y-%m-%dT%H:%M:%SZ}"
        first, last = (f"{when:%Y-%m-%dT%H:%M:%SZ}" for when in (begun, datetime.now(UTC)))
        for name in NAMES:
            found = await series(session, ingest.url, name, asked)
            assert (found["total"], found["exact"]) == (ROUNDS, True), found
            assert all(first <= point["from"] <= last for point in found["points"] if point["count"])
        for name in NAMES[::60]:
            assert (await series(session, ingest.url, name, "by=hour"))["total"] == ROUNDS


async def _pending(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/v1/counters?{'&'.join(f'name={name}' for name in NAMES)}&max_age=0") as answer:
        return sum(one["pending"] for one in (await answer.json())["counters"])
