"""Programs count straight on a topic of the Pub/Sub emulator, flushers apply it, and each increment counts once."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from countersink import AsyncClient
from tests.emulators.proxy import Proxy, proxy
from tests.meta.checkout import ROOT
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes
from tests.processes.test_client import COUNTS, heard, said

pytestmark = pytest.mark.timeout(180)
WITHIN = 60.0
FORKS = """
    import os, sys
    from countersink import Client

    counters = Client(sys.argv[1], interval=float(sys.argv[2]))
    counters.incr("parent")
    if sys.argv[2] == "0":
        assert counters.flush(30)  # it has a connection when it forks
    for _ in range(3):
        if not os.fork():
            for _ in range(1000):
                counters.incr("a")
            sys.exit()
    for _ in range(3):
        assert os.wait()[1] == 0
    counters.incr("parent")
"""


@dataclass
class Counting:
    """A fleet, and the topic as a program sees it: behind a proxy."""

    url: str
    network: Proxy
    service: str

    def program(self, text: str, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-u", "-c", textwrap.dedent(text), self.url, *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PUBSUB_EMULATOR_HOST": self.network.address}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    async def until(self, name: str, value: int) -> None:
        """A read does not show what others publish until it is applied."""
        async with asyncio.timeout(WITHIN):
            while await self.total(name) < value:
                await asyncio.sleep(0.05)
        assert await self.total(name) == value

    async def total(self, name: str) -> int:
        async with AsyncClient(self.service) as client:
            return (await client.get(name, max_age=0)).value


@pytest.fixture
async def counting(on_emulators: Emulated, tmp_path: Path) -> AsyncIterator[Counting]:
    place = on_emulators.pubsub.place
    settings = on_emulators.settings | {"COUNTERSINK_FLUSH_INTERVAL": "0.05"}
    async with (
        proxy(settings["PUBSUB_EMULATOR_HOST"]) as network,
        processes(tmp_path, tmp_path / "log", **settings) as started,
    ):
        ingest, _ = await asyncio.gather(started.start("ingest", "--port", "0"), started.start("flusher"))
        yield Counting(f"pubsub://{place.project}/{place.topic_id}", network, ingest.url)


async def test_what_is_published_twice_counts_once(counting: Counting) -> None:
    """The answers are lost, again and again: Pub/Sub has the message, and the client does not know."""
    turns = 20
    client = counting.program(COUNTS, str(turns), "x")
    while client.poll() is None:
        counting.network.lose_answers()
        await asyncio.sleep(0.1)
        counting.network.cut()
        await asyncio.sleep(0.3)  # longer than the client's pause, which is 0.1 seconds while it flushes
    await said(client)
    assert counting.network.lost
    await counting.until("a", 100 * turns)
    await counting.until("b", 200 * turns)


@pytest.mark.parametrize("interval", ["0", "5"])
async def test_children_of_a_fork_publish_for_themselves_and_all_do_at_their_end(
    counting: Counting, interval: str
) -> None:
    assert await said(counting.program(FORKS, interval)) == ""
    await counting.until("a", 3_000)
    await counting.until("parent", 2)


async def test_a_client_is_killed_and_nothing_is_lost_that_it_was_told(counting: Counting) -> None:
    client = counting.program(COUNTS, "100000", "x")
    lines = await heard(client)
    client.kill()
    out = lines + (await asyncio.to_thread(client.communicate))[0]
    least = max(map(int, re.findall(r"^told (\d+)$", out, re.MULTILINE)))
    most = max(map(int, re.findall(r"^begun (\d+)$", out, re.MULTILINE)))
    check = counting.program("from countersink import Client; import sys; Client(sys.argv[1]).incr('last')")
    await said(check)
    await counting.until("last", 1)  # the topic has no order: what came before may still be on its way
    async with asyncio.timeout(WITHIN):
        while not (await counting.total("a") >= 100 * least and await counting.total("b") >= 200 * least):
            await asyncio.sleep(0.05)
    assert await counting.total("a") <= 100 * most
    assert await counting.total("b") <= 200 * most


async def test_a_program_ends_within_seconds_though_pubsub_hangs(counting: Counting) -> None:
    counting.network.freeze()
    text = """
        import atexit, sys, time
        from countersink import Client
        counters = Client(sys.argv[1], interval=0)
        counters.incr("a")
        time.sleep(0.2)
        began = time.monotonic()
        atexit._run_exitfuncs()
        print(round(time.monotonic() - began, 1))
    """
    out = await said(counting.program(text))
    assert "dropped 1 increment" in out
    assert float(out.splitlines()[-1]) <= 3.0
    counting.network.thaw()
