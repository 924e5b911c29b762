"""A row on one pair: its fleet, its load, and the hands that a fault has on them."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import aiohttp

from deploy.processes import free_port
from tests.emulators.own import OwnEmulator
from tests.emulators.proxy import Proxy, proxy
from tests.emulators.redis_fixtures import RedisServer
from tests.processes.fleet.pairs import Emulated, Pair
from tests.processes.fleet.slots import DRAIN, Slot
from tests.processes.fleet.truth import Truths
from tests.processes.harness import Processes, processes
from tests.reliability.calls import Calls
from tests.reliability.load import Load
from tests.reliability.peak import Peak
from tests.reliability.rows import Row

SETTINGS = {
    "COUNTERSINK_FLUSH_INTERVAL": "0.2",
    "COUNTERSINK_CACHE_TTL": "0.5",
    "COUNTERSINK_DRAIN_TIMEOUT": str(DRAIN),
}
PATIENCE = aiohttp.ClientTimeout(total=20)
"""Of a client over HTTP: whom it asks may be frozen."""


class Ground(Protocol):
    """Where a scene is set: who started the emulators, and ends them."""

    folder: Path

    async def pair(self, row: Row, name: str) -> Pair: ...

    def emulator(self, name: str) -> OwnEmulator: ...

    def redis(self) -> RedisServer: ...


class Scene:
    """What a fault may lay its hands on."""

    def __init__(self, row: Row, pair: Pair, ground: Ground, seed: int) -> None:
        self.row = row
        self.pair = pair
        self.ground = ground
        self.folder = ground.folder
        self.random = random.Random(seed)
        self.ingests: list[Slot] = []
        self.flushers: list[Slot] = []
        self.calls: Calls
        self.load: Load
        self.started: Processes
        self.ingest_wire: Proxy
        """To Pub/Sub, for ingests."""
        self.broker_wire: Proxy
        """For flushers."""
        self.store_wire: Proxy
        self.hurt: OwnEmulator
        self.redis: RedisServer
        self.peak = Peak(self._pids)

    @property
    def slots(self) -> list[Slot]:
        return [*self.flushers, *self.ingests]

    def _pids(self) -> list[int]:
        return [slot.running.process.pid for slot in self.slots if slot.running]

    @property
    def seconds(self) -> float:
        return asyncio.get_running_loop().time()

    def chance(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)

    def pick(self, slots: list[Slot]) -> Slot:
        return self.random.choice(slots)

    async def command(self, *words: str, code: int = 0) -> str:
        """What `countersink WORDS` says, which must end with that exit code."""
        where = self.slots[0].within if self.row.place else ()  # the file may be on a disk that only they see
        process = await asyncio.create_subprocess_exec(
            *(*where, sys.executable, "-m", "countersink", *words),
            env=self.started.environment,
            stdout=PIPE,
            stderr=STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == code, said.decode()
        return said.decode()

    async def busy(self, answers: int = 20, within: float = 20.0) -> None:
        """Until so many more requests have been answered."""
        enough = self.calls.answers + answers
        async with asyncio.timeout(within):
            while self.calls.answers < enough:
                self.load.check()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def scene(row: Row, name: str, ground: Ground, seed: int = 1) -> AsyncIterator[Scene]:
    """All of it is there, and everybody is at work; afterwards nothing of it is left."""
    async with AsyncExitStack() as stack:
        pair = row.place(ground.folder) if row.place else await ground.pair(row, name)
        stack.push_async_callback(pair.close)
        one = Scene(row, pair, ground, seed)
        settings = {**pair.settings, **SETTINGS}
        emulated = isinstance(pair, Emulated)
        of_ingests: dict[str, str] = {}
        if row.hurt:
            one.hurt = ground.emulator("pubsub" if row.hurt == "broker" else name)
        if emulated and row.wires:
            one.ingest_wire, one.broker_wire, one.store_wire = [
                await stack.enter_async_context(proxy(settings[f"{what}_EMULATOR_HOST"]))
                for what in ("PUBSUB", "PUBSUB", "DATASTORE")
            ]
            of_ingests["PUBSUB_EMULATOR_HOST"] = one.ingest_wire.address
            settings["PUBSUB_EMULATOR_HOST"] = one.broker_wire.address
            settings["DATASTORE_EMULATOR_HOST"] = one.store_wire.address
        if row.redis:
            one.redis = ground.redis()
            settings["COUNTERSINK_OVERLAY"] = one.redis.url
        settings |= row.settings
        log = ground.folder / "log"
        one.started = await stack.enter_async_context(processes(ground.folder, log, **settings))
        within = row.within(one) if row.within else ()
        for number in range(row.ingests):
            command = tuple(str(free_port()) if word == "0" else word for word in row.ingest)
            file = str(ground.folder / f"spool-{number}.db")
            spool = {"COUNTERSINK_SPOOL": file, "COUNTERSINK_SPOOL_DISK": "durable"} if emulated else {}
            one.ingests.append(Slot(one.started, command, {**of_ingests, **spool, **row.ingest_settings}, within))
        one.flushers += [Slot(one.started, ("flusher",), {}, within) for _ in range(row.flushers)]
        await asyncio.gather(*(slot.start() for slot in one.slots))
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=PATIENCE))
        one.calls = Calls(pair, session, Truths(row.clients.counters), row.refusals)
        one.load = await stack.enter_async_context(Load(one.calls, one.ingests, row.clients, seed))
        await stack.enter_async_context(one.peak.watching())
        yield one
