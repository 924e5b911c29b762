"""Processes killed with SIGKILL and started again, under load: the totals are the number of distinct 202s."""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.processes.clients import Client, Tally, total_of
from tests.processes.harness import Processes, Running, processes

CLIENTS = 16
KILLS = 12
PAUSE = (0.1, 0.6)
"""Seconds between two kills."""


async def under_load(url: str, kill_one: Callable[[], Awaitable[None]]) -> Tally:
    """Clients and readers at work while somebody is killed again and again."""
    tally = Tally()
    done = asyncio.Event()
    chance = random.Random(7)
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
        clients = [Client(session, url, tally, number) for number in range(CLIENTS)]
        for client in clients:
            tasks.create_task(client.send(done))
        for client in clients[:3]:
            tasks.create_task(client.read(done))
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(*PAUSE))
            await kill_one()
        done.set()
    assert sum(tally.answered.values()) > 2_000
    assert tally.reads > KILLS
    return tally


async def at_rest(url: str, tally: Tally) -> None:
    """All is applied, nothing is missing, nothing is too much."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while True:
            values, pending = await total_of(session, url)
            assert values == tally.answered
            if not pending:
                return
            await asyncio.sleep(0.05)


async def settled(data: Path) -> None:
    """What was applied by one that was killed before its ack comes again when the lease ends, and is then known."""
    async with asyncio.timeout(30):
        while messages_in(data):
            await asyncio.sleep(0.05)


def messages_in(data: Path) -> int:
    with contextlib.closing(sqlite3.connect(data / "countersink.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM messages").fetchone()
        return int(count)


def sound(data: Path) -> None:
    """Nothing needs repair."""
    with sqlite3.connect(data / "countersink.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


class Fleet:
    """Who is killed, and started again as it was."""

    def __init__(self, started: Processes) -> None:
        self._started = started
        self._members: list[tuple[Running, tuple[str, ...]]] = []
        self._chance = random.Random(3)

    async def add(self, *arguments: str) -> Running:
        running = await self._started.start(*arguments)
        again = tuple(str(running.port) if argument == "0" else argument for argument in arguments)
        self._members.append((running, again))
        return running

    async def kill_one(self) -> None:
        """A process or, as often, one of its workers, which it has to start again itself."""
        index = self._chance.randrange(len(self._members))
        running, arguments = self._members[index]
        workers = running.children()
        if workers and self._chance.random() < 0.5:
            os.kill(self._chance.choice(workers), signal.SIGKILL)
            return
        await running.end(signal.SIGKILL)
        self._members[index] = (await self._started.start(*arguments), arguments)


async def killed_again_and_again(data: Path, *fleet: tuple[str, ...]) -> None:
    """The first of the fleet is the one that listens."""
    async with processes(data, COUNTERSINK_FLUSH_INTERVAL="0.2", COUNTERSINK_LEASE="2") as started:
        members = Fleet(started)
        listening, *_ = [await members.add(*arguments) for arguments in fleet]
        tally = await under_load(listening.url, members.kill_one)
        await at_rest(listening.url, tally)
        await settled(data)
    sound(data)


@pytest.mark.timeout(120)
async def test_workers_and_flushers_killed_again_and_again(tmp_path: Path) -> None:
    ingest = ("ingest", "--port", "0", "--workers", "2")
    await killed_again_and_again(tmp_path, ingest, ("flusher",), ("flusher",))


@pytest.mark.timeout(120)
async def test_all_in_one_process_killed_again_and_again(tmp_path: Path) -> None:
    await killed_again_and_again(tmp_path, ("up", "--port", "0"))
