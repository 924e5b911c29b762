"""Senders that people already have: a StatsD library over UDP and TCP, and the CloudEvents SDK in each mode. All reach
the same total, while flushers are killed.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import statsd  # type: ignore[import-untyped] # it has no types
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from countersink import AsyncClient
from tests.processes.harness import Processes, Running, processes
from tests.world.scraping import metric

ROUNDS: Final = 3
EACH: Final = 100
"""Increments of a counter in a round."""
SENT: Final = ROUNDS * EACH
COUNTERS: Final = ("statsd.udp", "statsd.tcp", "binary", "structured", "batch", "plain")


def address_of(running: Running) -> tuple[str, int]:
    """Where it takes StatsD lines, as it says at the start."""
    found = re.search(r"StatsD on ([0-9.]+):(\d+)", running.line)
    assert found, running.line
    return found[1], int(found[2])


def event(counter: str, number: int) -> CloudEvent:
    attributes = {"type": "counted", "source": f"//test/{counter}", "id": str(number)}
    return CloudEvent(attributes=attributes, data={"counter": counter})


async def post(session: aiohttp.ClientSession, path: str, body: bytes, headers: dict[str, str]) -> None:
    async with session.post(path, data=body, headers=headers) as response:
        assert response.status == 202, await response.text()


async def send_events(session: aiohttp.ClientSession, numbers: range) -> None:
    """Each twice, as a sender does that got no answer to the first."""
    messages = [to_binary_event(event("binary", number)) for number in numbers]
    messages += [to_structured_event(event("structured", number)) for number in numbers]
    for _ in range(2):
        await asyncio.gather(*(post(session, "/v1/events", one.body, one.headers) for one in messages))
    batch = b"[" + b",".join(to_structured_event(event("batch", number)).body for number in numbers) + b"]"
    for _ in range(2):
        await post(session, "/v1/events", batch, {"Content-Type": "application/cloudevents-batch+json"})


def send_lines(address: tuple[str, int]) -> None:
    """In few packets, so that the kernel has room for them."""
    for client, counter in (
        (statsd.StatsClient(*address), COUNTERS[0]),
        (statsd.TCPStatsClient(*address), COUNTERS[1]),
    ):
        with client.pipeline() as pipe:
            for _ in range(EACH):
                pipe.incr(counter)
        client.close()


@asynccontextmanager
async def flushers_that_die(started: Processes) -> AsyncIterator[list[int]]:
    """Two flushers, of which one after the other is killed and replaced. Tells when each was killed."""
    killed: list[int] = []

    async def kill() -> None:
        while True:
            flushers.append(await started.start("flusher"))
            await flushers.pop(0).end(signal.SIGKILL)
            killed.append(1)

    flushers = [await started.start("flusher") for _ in range(2)]
    killing = asyncio.create_task(kill())
    try:
        yield killed
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)


async def test_all_reach_the_same_total_whoever_is_killed(tmp_path: Path) -> None:
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1"}
    async with processes(tmp_path, tmp_path / "log", **settings) as started:
        service = await started.start("ingest", "--port", "0", "--statsd", "0")
        async with flushers_that_die(started) as killed, aiohttp.ClientSession(service.url) as session:
            for number in range(ROUNDS):
                await asyncio.to_thread(send_lines, address_of(service))
                numbers = range(number * EACH, (number + 1) * EACH)
                await send_events(session, numbers)
                items: list[dict[str, Any]] = [{"counter": "plain", "id": str(one)} for one in numbers]
                async with session.post("/v1/increments", json=items) as response:
                    assert response.status == 202
                async with asyncio.timeout(60):
                    while len(killed) <= number:
                        await asyncio.sleep(0.01)
        flusher = await started.start("flusher")
        async with AsyncClient(service.url) as client:
            async with asyncio.timeout(60):
                while await metric(service.url, "countersink_pending_increments") or any(
                    one.value != SENT for one in await client.get_many(COUNTERS)
                ):
                    await asyncio.sleep(0.02)
            assert {one.name: one.applied async for one in client.list("")} == dict.fromkeys(COUNTERS, SENT)
            assert await metric(service.url, "countersink_statsd_lines_total") == 2 * SENT
            for name in ("uncounted_lines_total", "dropped_packets_total", "waiting_lines"):
                assert await metric(service.url, f"countersink_statsd_{name}") == 0
            assert await metric(service.url, "countersink_drift_increments") == 0
        assert (await flusher.end(signal.SIGTERM), await service.end(signal.SIGTERM)) == (0, 0)
        audit = await started.command("audit")
        assert audit.code == 0, audit
