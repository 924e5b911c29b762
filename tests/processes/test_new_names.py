"""A flood of new names against real processes ends at COUNTERSINK_MAX_COUNTERS, and counters that exist go on."""

import asyncio
import signal
from pathlib import Path

import aiohttp

from tests.processes.harness import Running, processes

LIMITS = "page:=40,=50"


async def statuses(session: aiohttp.ClientSession, running: Running, names: list[str]) -> list[int]:
    async def count(name: str) -> int:
        async with session.post(f"{running.url}/v1/counters/{name}?wait=applied") as answer:
            return answer.status

    return await asyncio.gather(*map(count, names))


async def stored(session: aiohttp.ClientSession, running: Running) -> dict[str, int]:
    async with session.get(f"{running.url}/v1/counters?limit=1000&max_age=0") as answer:
        return {one["name"]: one["value"] for one in (await answer.json())["counters"]}


async def test_two_ingest_processes_keep_to_the_limit_also_after_they_are_killed(tmp_path: Path) -> None:
    """Each may overshoot once, by what the other admits between two counts."""
    async with (
        processes(tmp_path / "data", COUNTERSINK_MAX_COUNTERS=LIMITS) as ours,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session,
    ):
        one = await ours.start("ingest", "--port", "0")
        await ours.start("flusher")
        first = await statuses(session, one, [f"page:{number}" for number in range(150)])
        assert (first.count(200), first.count(429)) == (40, 110)
        there = await stored(session, one)
        assert len(there) == 40
        await one.end(signal.SIGKILL)
        one, two = await ours.start("ingest", "--port", "0"), await ours.start("ingest", "--port", "0")
        for running in (one, two):
            assert set(await statuses(session, running, [*there])) == {200}
            assert set(await statuses(session, running, [f"page:more{number}" for number in range(50)])) == {429}
        for number, running in enumerate((one, two, one, two)):
            others = await statuses(session, running, [f"other{number}:{one}" for one in range(50)])
            assert others.count(200) <= 10
        assert 50 <= len(await stored(session, one)) <= 60
        assert {name: value for name, value in (await stored(session, two)).items() if name in there} == dict.fromkeys(
            there, 3
        )
