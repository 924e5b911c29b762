"""From a SQLite file to Google Cloud and back, under load, with clients that retry across the move."""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from shared.datastore.buckets import DatastoreArrivals
from tests.cli.running import run
from tests.contracts.arrivals import ArrivalsContract, Arriving
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.pubsub_fixtures import Pubsub, settings_of
from tests.processes.harness import Processes, Running, processes

COUNTERS = 20
CLIENTS = 8
WITHIN = 120.0
QUIET = 2.0
"""Seconds without a commit, after which a subscription is taken to be empty."""
RETRIED_LATER = 100
"""Requests that were answered, and are sent once more behind each move."""
LOAD = 150
"""Requests between two steps."""
RULES = {"COUNTERSINK_WINDOWS": "=hour/90d,day/2y", "COUNTERSINK_FLUSH_INTERVAL": "0.05"}


Request = tuple[str, bytes, dict[str, str]]
"""Path, body and headers."""


@dataclass
class Clients:
    """They send each request until it is answered, wherever the service is then, and some of them again."""

    session: aiohttp.ClientSession
    url: str
    expected: dict[str, int] = field(default_factory=dict)
    answered: list[Request] = field(default_factory=list)
    longest: float = 0.0
    """Seconds that one waited for its answer."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._count(stop))

    async def _count(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = next(self._numbers)
            name, delta = f"page:{number % COUNTERS}", number % 7 + 1
            if number % 3:
                request: Request = (
                    f"/v1/counters/{name}",
                    json.dumps({"delta": delta, "id": f"id-{number}"}).encode(),
                    {},
                )
            else:
                body = json.dumps({"counters": {name: delta}}).encode()
                request = ("/v1/increments", body, {"Idempotency-Key": f"key-{number}"})
            self.expected[name] = self.expected.get(name, 0) + delta
            await self.send(*request)
            self.answered.append(request)
            if not number % 5:
                await self.send(*random.choice(self.answered))

    async def send(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        begun = time.monotonic()
        while True:
            try:
                async with self.session.post(self.url + path, data=body, headers=headers) as answer:
                    if answer.status in {200, 202}:
                        break
                    assert answer.status in {429, 503}, await answer.text()
            except (aiohttp.ClientConnectionError, TimeoutError):
                pass
            await asyncio.sleep(0.02)
        self.longest = max(self.longest, time.monotonic() - begun)

    async def again(self) -> None:
        """Some of what was answered long ago is sent once more."""
        for request in random.sample(self.answered, RETRIED_LATER):
            await self.send(*request)

    async def more(self) -> None:
        until = len(self.answered) + LOAD
        async with asyncio.timeout(WITHIN):
            while len(self.answered) < until:
                await asyncio.sleep(0.05)

    async def totals(self) -> dict[str, int]:
        async with self.session.get(f"{self.url}/v1/counters?prefix=page:&limit=100&max_age=0") as answer:
            return {one["name"]: one["value"] for one in (await answer.json())["counters"]}

    async def by_time(self) -> dict[str, int]:
        found = {}
        for name in self.expected:
            async with self.session.get(f"{self.url}/v1/counters/{name}/series?by=hour") as answer:
                found[name] = (await answer.json())["total"]
        return found

    async def settled(self) -> None:
        """Everything that was sent is in the totals and in the counts by time, once."""
        async with asyncio.timeout(WITHIN):
            while (await self.totals(), await self.by_time()) != (self.expected, self.expected):
                await asyncio.sleep(0.2)


class TestDatastoreArrivals(ArrivalsContract):
    @pytest.fixture
    async def arriving(self, datastore: Datastore) -> Arriving:
        return Arriving(await datastore.store(), DatastoreArrivals(datastore.client()))


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, tmp_path / "log", **RULES) as all_of_them:
        yield all_of_them


async def copied(origin: str, target: str, datastore: Datastore, *, whole: bool) -> dict[str, int]:
    """What it says. `whole`: nothing may differ or wait."""
    host = {"DATASTORE_EMULATOR_HOST": datastore.host}
    done = await asyncio.to_thread(run, "copy", "--from", origin, "--to", target, "--json", cwd=None, **host)
    said = json.loads(done.out.splitlines()[-1])
    assert not whole or (done.code, said["differences"]) == (0, 0), done
    return {**said["origin"], **{f"new_{name}": number for name, number in said["copied"].items()}}


async def end(*running: Running) -> None:
    for one in running:
        assert await one.end(signal.SIGTERM) == 0


async def test_under_load_there_and_back_nothing_is_lost_and_nothing_counts_twice(
    started: Processes, pubsub: Pubsub, datastore: Datastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = settings_of(pubsub, datastore)
    store = cloud["COUNTERSINK_STORE"]
    file, back = (f"sqlite:///{tmp_path / name}" for name in ("countersink.db", "back.db"))
    old = await started.start("up", "--port", "0")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        clients = Clients(session, old.url)
        stop = asyncio.Event()
        load = asyncio.create_task(clients.run(stop))
        try:
            await clients.more()
            await copied(file, store, datastore, whole=False)  # while it counts
            await clients.more()
            ingest = await started.start("ingest", "--port", "0", **cloud)
            flusher = await started.start("flusher", **cloud)
            clients.longest = 0.0
            await end(old)
            there = await copied(file, store, datastore, whole=True)
            clients.url = ingest.url
            await clients.more()
            waited = clients.longest
            await clients.again()
            assert there["new_receipts"] < there["receipts"]

            await clients.more()
            clients.longest = 0.0
            await end(ingest)
            await drained(datastore)
            await end(flusher)
            new = await copied(store, back, datastore, whole=True)
            young = await started.start("up", "--port", "0", COUNTERSINK_BROKER=back)
            clients.url = young.url
            await clients.more()
            waited_back = clients.longest
            await clients.again()
        finally:
            stop.set()
            await load
        await clients.settled()
        audit = await asyncio.to_thread(run, "audit", cwd=None, COUNTERSINK_BROKER=back, **RULES)
        assert audit.code == 0, audit
        await end(young)
    if os.environ.get("COUNTERSINK_TELL"):
        with capsys.disabled():
            print(f"\n{len(clients.answered)} requests; {there}; writes waited {waited:.1f} s")  # noqa: T201
            print(f"back: {new}; writes waited {waited_back:.1f} s")  # noqa: T201


async def drained(datastore: Datastore) -> None:
    """Nothing has been applied for some time, though a flusher runs: nothing is left in the subscription."""
    store = await datastore.store()
    async with asyncio.timeout(WITHIN):
        before, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET:
            async with store.snapshot() as snapshot:
                totals, _ = await snapshot.read([f"page:{number}" for number in range(COUNTERS)], ())
            if (applied := sum(total.value for total in totals.values())) != before:
                before, since = applied, time.monotonic()
            await asyncio.sleep(0.1)
