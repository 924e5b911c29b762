"""Pub/Sub and Datastore away for some seconds: clients are told to come back, nothing is lost, and nobody waits on."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.emulators.proxy import Proxy, proxy
from tests.fleet.load import Load
from tests.fleet.pairs import Emulated
from tests.processes.harness import processes

AWAY = 12.0
"""Seconds: longer than ingest tries to publish, before it says that it can't."""
DRAIN = 2
LONGEST_END = DRAIN + 9.0
"""After SIGTERM. Nothing can be given back, and nobody should wait for that."""
RECOVERY = 10.0
"""Seconds after which requests are answered again, and then after which all is applied."""
TIMEOUT = aiohttp.ClientTimeout(total=25)


async def freeze(wire: Proxy) -> None:
    wire.freeze()


async def thaw(wire: Proxy) -> None:
    wire.thaw()


@asynccontextmanager
async def under_load(load: Load) -> AsyncIterator[None]:
    async with load.running():
        await until(lambda: load.answered.total() > 100, 20)
        yield


async def until(true: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.02)


async def post(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.post(f"{url}/v1/counters/other") as response:
            return response.status
    except aiohttp.ClientConnectionError:
        return 0


@pytest.mark.timeout(120)
async def test_what_is_away_for_some_seconds_is_waited_for(on_emulators: Emulated, tmp_path: Path) -> None:
    """Not there at all, or frozen: one of both on each pair."""
    pair = on_emulators
    leave, come_back = (Proxy.go, Proxy.come) if pair.once else (freeze, thaw)
    async with (
        proxy(pair.pubsub.host) as pubsub,
        proxy(pair.datastore.host) as datastore,
        processes(
            tmp_path,
            tmp_path / "log",
            **pair.settings | {"PUBSUB_EMULATOR_HOST": pubsub.address, "DATASTORE_EMULATOR_HOST": datastore.address},
            COUNTERSINK_FLUSH_INTERVAL="0.1",
            COUNTERSINK_DRAIN_TIMEOUT=str(DRAIN),
        ) as started,
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
    ):
        ingest, flusher, other_ingest, other_flusher = await asyncio.gather(
            *(started.start(*arguments) for arguments in (("ingest", "--port", "0"), ("flusher",)) * 2)
        )
        load = Load(pair, session, ingest.url)
        async with under_load(load):
            for wire in (pubsub, datastore):
                await leave(wire)
            begun = asyncio.get_running_loop().time()
            waiting = asyncio.create_task(post(session, other_ingest.url))
            await asyncio.sleep(0.1)  # so that it is under way
            async with asyncio.timeout(LONGEST_END):
                ends = (running.end(signal.SIGTERM) for running in (other_flusher, other_ingest))
                assert await asyncio.gather(*ends) == [0, 0]
            assert await waiting in {0, 503}
            await until(lambda: load.statuses[503] > 0, AWAY)
            await asyncio.sleep(max(0, begun + AWAY - asyncio.get_running_loop().time()))
            for wire in (pubsub, datastore):
                await come_back(wire)
            answered = load.answered.total()
            await until(lambda: load.answered.total() > answered + 20, RECOVERY)
        await load.at_rest(RECOVERY)
        for running in (flusher, ingest):
            assert await running.end(signal.SIGTERM) == 0
        assert await pair.left() == 0
