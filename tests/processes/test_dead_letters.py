"""Replays over HTTP whose process is killed in the middle: each increment counts once, and the accounts agree."""

import asyncio
import contextlib
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp

from shared.config.settings import Settings
from shared.model.words import Envelope, Increment
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from shared.wire.codec import encode
from tests.processes.harness import processes

LETTERS = 1_000
LIVES = 3
RULE = (
    "CREATE TRIGGER rule BEFORE INSERT ON shards WHEN NEW.counter LIKE 'p%'"
    " BEGIN SELECT RAISE(ABORT, 'not in this file'); END"
)


def rows(file: Path, query: str) -> Any:
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as db:
        return db.execute(query).fetchone()


def letters(file: Path) -> int:
    (number,) = rows(file, "SELECT count(*) FROM messages WHERE buried IS NOT NULL")
    return int(number)


async def publish(file: Path) -> None:
    """Envelopes with a sum and an id each. Each id is in two of them."""
    database = Database(file)
    publisher = SqlitePublisher(database, SystemClock(), Settings().max_pending_bytes)
    envelopes = [
        Envelope(f"e-{number}", {"p:sum": 2}, {"p:sum": 1}, (Increment("p:id", 1, f"id-{number // 2}"),))
        for number in range(LETTERS)
    ]
    await publisher.publish([encode(envelope) for envelope in envelopes])
    await database.close()


async def replay(url: str) -> dict[str, int]:
    """What it did, or nothing if its process was killed meanwhile."""
    with contextlib.suppress(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/dead-letters/replay", json={"all": True}) as response,
        ):
            assert response.status == 200, await response.text()
            done: dict[str, int] = await response.json()
            return done
    return {}


async def test_each_increment_counts_once_though_its_replays_are_killed(tmp_path: Path) -> None:
    file = tmp_path / "countersink.db"
    async with processes(tmp_path, tmp_path / "log", COUNTERSINK_FLUSH_INTERVAL="0.05") as started:
        service = await started.start("up", "--port", "0")
        rows(file, RULE)
        await publish(file)
        async with asyncio.timeout(60):
            while letters(file) < LETTERS:
                await asyncio.sleep(0.05)
        rows(file, "DROP TRIGGER rule")
        left, killed = LETTERS, 0
        for _ in range(LIVES):
            both = [asyncio.create_task(replay(service.url)) for _ in range(2)]
            async with asyncio.timeout(60):
                while letters(file) == left:
                    await asyncio.sleep(0.001)
            await service.end(signal.SIGKILL)
            await asyncio.gather(*both)
            left = letters(file)
            killed += left > 0
            service = await started.start("up", "--port", "0")
            if not left:
                break
        assert killed > 0
        async with asyncio.timeout(60):
            while (last := await replay(service.url))["more"]:
                pass
        assert (last["left"], last["letters_left"]) == (0, 0)
        async with aiohttp.ClientSession() as session:
            for counter, value in (("p:sum", 2 * LETTERS), ("p:id", LETTERS // 2)):
                async with session.get(f"{service.url}/v1/counters/{counter}") as response:
                    reading = await response.json()
                assert (reading["value"], reading["pending"], reading["exact"]) == (value, 0, True)
            async with session.get(f"{service.url}/v1/dead-letters") as response:
                assert (await response.json())["dead_letters"] == []
        audit = await started.command("audit", "--json")
        assert audit.code == 0, audit
        assert json.loads(audit.out.splitlines()[-1])["drift"] == 0
