"""A rolling upgrade, and a rollback: both versions run side by side, and every increment counts once. A job is under
way each time.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import countersink
from countersink import AsyncClient
from shared.datastore.fleet import DatastoreFleetBook
from tests.processes.fleet import version_before
from tests.processes.fleet.calls import Calls, Request
from tests.processes.fleet.pairs import Embedded, Emulated, Pair
from tests.processes.fleet.slots import DRAIN, Slot
from tests.processes.harness import Processes, Running, processes

LAST = 3
"""The number of the last process that is replaced."""
ACCOUNTS = {True: 6_000, False: 1_500}
"""How many counters the job has on a file, and on emulators, where each takes longer. It runs while flushers change."""
LONGEST_WAIT = 300.0
"""Seconds of one `wait`."""
BETWEEN = 15
"""Increments between two processes that are replaced."""


@pytest.fixture
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return version_before.unpack(tmp_path_factory.mktemp("before").resolve())


@pytest.fixture
async def started(pair: Pair, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Processes]:
    settings = pair.settings | {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_DRAIN_TIMEOUT": str(DRAIN)}
    settings["COUNTERSINK_JOB_TASKS"] = "1"
    if isinstance(pair, Emulated):
        settings["COUNTERSINK_OVERLAY"] = request.getfixturevalue("redis").url
        # 0.1.0 takes the probe of a process that starts at the same time for a sign that the store was used before, and
        # then nothing is exact for more than an hour. So its processes find a fleet that has begun.
        await DatastoreFleetBook(pair.datastore.client()).change(lambda fleet, _: fleet)
    async with processes(tmp_path, tmp_path / "log", **settings) as all_of_them:
        yield all_of_them


def started_in(running: Running) -> Path:
    return Path(f"/proc/{running.process.pid}/cwd").resolve()


class Fleet:
    """Two ingests and two flushers, each of one version or the other, and a client."""

    def __init__(
        self, started: Processes, before: Path, calls: Calls, session: aiohttp.ClientSession, accounts: int
    ) -> None:
        self._before = before
        self._calls = calls
        self._session = session
        self._accounts = [f"account:{number:04}" for number in range(accounts)]
        self._numbers = itertools.count()
        self._chance = random.Random(1)
        self.ingests = [Slot(started, ("ingest", "--port", "0")) for _ in range(2)]
        self.flushers = [Slot(started, ("flusher",)) for _ in range(2)]
        self._slots = [*self.ingests, *self.flushers]

    async def start(self, slot: Slot, *, older: bool) -> None:
        slot.within = ("env", "-C", str(self._before)) if older else ()
        slot.settings = {"PYTHONPATH": str(self._before)} if older else {}
        await slot.start()
        assert slot.running
        assert (started_in(slot.running) == self._before) == older  # Python looks first where it is started
        if slot in self.ingests:
            async with self._session.get(f"{slot.url}/version") as answer:
                assert (await answer.json())["version"] == (
                    version_before.RELEASE if older else countersink.__version__
                )

    async def start_all(self) -> None:
        for slot in self._slots:
            await self.start(slot, older=True)

    async def count(self, most: int) -> None:
        """Each increment is sent until it is accepted, and some are sent once more, to whoever is there."""
        for number in itertools.islice(self._numbers, most):
            counter, bit, delta = self._calls.truths.next(number)
            body = {"delta": delta, "id": f"id-{number}"}
            request = Request(f"/v1/counters/{counter}", body, {}, [(counter, bit, delta)])
            while not self._calls.truths.of(counter).answered & bit:
                await self._calls.post(self._any(), request)
            if number % 5 == 0:
                await self._calls.post(self._any(), request)
            if number % 7 == 0:
                await self._calls.read(self._any(), fresh=True)

    def _any(self) -> Any:
        return self._chance.choice([slot for slot in self.ingests if slot.up()]).process()

    async def replace_all(self, *, older: bool) -> None:
        """One after the other, while increments come and a job runs."""
        for number, slot in enumerate(self._slots):
            if slot is self.flushers[0]:
                async with AsyncClient(self._any().url) as client:
                    await client.start_job("add", "account:", 10, id=f"older-{older}")
            counting = asyncio.create_task(self.count(BETWEEN))
            slot.busy = True
            await slot.terminate()
            await self.start(slot, older=older)
            slot.busy = False
            await self.set(number)
            await counting

    async def set(self, value: int) -> None:
        """A counter, by whoever is there, until it says that it did it."""
        while True:
            url, key = f"{self._any().url}/v1/counters/set", {"Idempotency-Key": f"set-{next(self._numbers)}"}
            async with self._session.put(url, json={"value": value}, headers=key) as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.1)

    async def value_of_set(self) -> int:
        async with self._session.get(f"{self._any().url}/v1/counters/set?max_age=0") as response:
            return int((await response.json())["value"])

    async def make_accounts(self) -> None:
        async with AsyncClient(self._any().url) as client:
            await client.increment_many(dict.fromkeys(self._accounts, 1), wait=LONGEST_WAIT)

    async def value_of_accounts(self, *, older: bool) -> AbstractSet[int]:
        """The values of all accounts, once the job is done."""
        async with AsyncClient(self._any().url) as client:
            while (done := await client.job(f"older-{older}")).state == "running":
                await asyncio.sleep(0.1)
            assert (done.state, done.changed) == ("done", len(self._accounts))
            return {one.value async for one in client.list("account:", page=1_000)}

    async def settled(self) -> None:
        while not all([await self._calls.read(slot.process(), fresh=True) for slot in self.ingests]):
            await asyncio.sleep(0.1)

    async def end(self) -> None:
        for slot in self._slots:
            await slot.terminate()


@pytest.mark.check  # the history of git
@pytest.mark.timeout(1_800)  # nothing else limits it: it only bounds a hang
async def test_every_increment_counts_once_through_an_upgrade_and_back(
    pair: Pair, started: Processes, before: Path
) -> None:
    async with aiohttp.ClientSession() as session:
        calls = Calls(pair, session)
        fleet = Fleet(started, before, calls, session, ACCOUNTS[isinstance(pair, Embedded)])
        await fleet.start_all()
        await fleet.count(BETWEEN)
        await fleet.make_accounts()
        for older, value in ((False, 11), (True, 21)):
            await fleet.replace_all(older=older)
            await fleet.settled()
            assert await fleet.value_of_accounts(older=older) == {value}
            assert await fleet.value_of_set() == LAST
        await fleet.end()
        await calls.nothing_is_left()
    audit = await started.command("audit")
    assert audit.code == 0, audit
