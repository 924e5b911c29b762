"""The power fails, at any moment, and before that an fsync: what was answered 202 is on the disk, once.

A real process writes, and strace writes down what; the disk is made of that, so that it loses what a disk may lose.
"""

import asyncio
import os
import random
import re
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import aiohttp
import orjson
import pytest

from shared.model.receipts import key_of_envelope
from tests.processes.harness import processes
from tests.processes.trace import Disk, calls, strace_needed, traced

pytestmark = pytest.mark.check  # strace

CLIENTS = 6
MOMENTS = 20
"""At which the power fails."""
_ACCEPTED = re.compile(rb'HTTP/1\.1 202 .*"receipt":"(\w+)"', re.DOTALL)


@pytest.fixture(autouse=True)
def strace() -> None:
    strace_needed()


class Sent:
    """Each request counts in a counter of its own, whose name goes under its receipt."""

    def __init__(self) -> None:
        self.by_receipt: dict[str, list[str]] = {}
        self.refused = 0

    async def some(self, url: str, least: int, enough: Callable[[], bool] = lambda: True) -> None:
        """At least so many requests."""
        first = sum(map(len, self.by_receipt.values())) + self.refused
        numbers = iter(range(first, first + 5_000))

        async def client(session: aiohttp.ClientSession) -> None:
            for number in numbers:
                name = f"c{number}"
                async with session.post(f"{url}/v1/counters/{name}", data=b'{"id": "once"}') as response:
                    answer = await response.json(content_type=None)
                if response.status == 202:
                    self.by_receipt.setdefault(answer["receipt"], []).append(name)
                else:
                    self.refused += 1
                if number >= first + least and enough():
                    return

        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(client(session))


def counted(files: Mapping[str, bytes], folder: Path) -> dict[str, int]:
    """What a start on this disk finds: applied, and waiting."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with closing(sqlite3.connect(folder / "countersink.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = {counter: int(count) for counter, count in db.execute("SELECT counter, count FROM shards")}
        known = {key for (key,) in db.execute("SELECT key FROM receipts")}
        for data, attributes in db.execute("SELECT data, attributes FROM messages"):
            if key_of_envelope(orjson.loads(attributes)["ce-id"]) in known:
                continue  # applied, and not yet acknowledged
            for increment in orjson.loads(data)["keyed"]:
                found[increment["counter"]] = found.get(increment["counter"], 0) + increment["delta"]
    return found


def check(disk: Disk, answered: set[str], sent: Sent, chance: random.Random, folder: Path) -> None:
    found = counted(disk.after_power_was_lost(chance), folder)
    assert set(found.values()) <= {1}, {name: count for name, count in found.items() if count != 1}
    promised = {name for receipt in answered for name in sent.by_receipt[receipt]}
    assert not promised - set(found)


def replay(traces: list[Path], data: Path, sent: Sent, folder: Path) -> Disk:
    """Lose the power at some of the moments at which a 202 is sent, and at the end."""
    chance = random.Random(5)
    disk, answered, number = Disk(), set[str](), 0
    total = len(sent.by_receipt)
    for trace in traces:
        disk.restart()
        for call in calls(trace):
            disk.see(call, data)
            accepted = _ACCEPTED.search(call.data) if call.name == "write" else None
            if accepted and (receipt := accepted[1].decode()) in sent.by_receipt:
                answered.add(receipt)
                if chance.random() < MOMENTS / total:
                    check(disk, answered, sent, chance, folder / str(number := number + 1))
    assert len(answered) > total - CLIENTS, "strace knows nothing of a call during which the process was killed"
    check(disk, answered, sent, chance, folder / "last")
    assert number > MOMENTS / 3
    return disk


async def run(data: Path, sent: Sent, trace: Path, least: int, *options: str, refused: int = 0) -> None:
    """One life of a process, until it is killed."""
    async with processes(data, COUNTERSINK_FLUSH_INTERVAL="0.05") as started:
        running = await started.start("up", "--port", "0", within=traced(trace, *options))
        most = sent.refused + refused
        await sent.some(running.url, least, lambda: sent.refused >= most)
        (child,) = running.children()
        os.kill(child, signal.SIGKILL)
        await running.process.wait()


@pytest.mark.timeout(120)
async def test_power_lost_at_any_moment(tmp_path: Path) -> None:
    data, sent = tmp_path / "data", Sent()
    await run(data, sent, tmp_path / "trace", 400)
    replay([tmp_path / "trace"], data, sent, tmp_path)


@pytest.mark.timeout(120)
async def test_an_fsync_that_failed_is_never_followed_by_a_202_for_its_data(tmp_path: Path) -> None:
    data, sent = tmp_path / "data", Sent()
    await run(data, sent, tmp_path / "trace", 300, "-e", "inject=fdatasync:error=EIO:when=20+7", refused=10)
    disk = replay([tmp_path / "trace"], data, sent, tmp_path)
    assert disk.failed


@pytest.mark.timeout(120)
@pytest.mark.parametrize("read", [False, True])
async def test_nor_if_the_process_is_killed_then_and_another_goes_on(tmp_path: Path, read: bool) -> None:
    """The second process reads from the log what the first could not sync, and must not build on it, even if somebody
    opened the file before, and goes on reading.
    """
    data, sent = tmp_path / "data", Sent()
    await run(data, sent, tmp_path / "one", 200, "-e", "inject=fdatasync:error=EIO:when=30+", refused=1)
    with closing(sqlite3.connect(data / "countersink.db", isolation_level=None)) as reader:
        if read:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM messages").fetchone()
        await run(data, sent, tmp_path / "two", 200)
    disk = replay([tmp_path / "one", tmp_path / "two"], data, sent, tmp_path)
    assert disk.failed
