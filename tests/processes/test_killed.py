"""Processes are killed while they count, set, delete, tell and replay: all is accounted for, once, and the limit of
names is kept.
"""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import pytest
from aiohttp import web

from countersink import AsyncClient, Changed, UnavailableError
from shared.config.settings import Settings
from shared.model.words import Envelope, Increment
from shared.receivers import keys_of, signatures
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from shared.wire.codec import encode
from tests.processes.harness import Running, accept, processes, series
from tests.world.scraping import metric, until
from tests.world.serving import serving

T = TypeVar("T")

LIVES: Final = 3
SOON: Final = {"COUNTERSINK_FLUSH_INTERVAL": "0.05", "COUNTERSINK_LEASE": "1"}
"""What a killed flusher held comes back soon."""


CLIENTS: Final = 3
STEPS: Final = 25


class Traffic:
    """Each request has an id of its own, and is sent until it is answered."""

    def __init__(self) -> None:
        self.url = ""
        self.counted = 0
        self.steps = 0
        self.changes: dict[str, Changed] = {}

    async def run(self, number: int) -> None:
        for step in range(STEPS):
            if step % 5 == 4:
                await self._change(f"{number}-{step}", step)
            else:
                await self._count(f"{number}-{step}", step + 1)
            self.steps += 1

    async def _count(self, name: str, delta: int) -> None:
        await self._insist(lambda client: client.increment("c", delta, id=name))
        self.counted += delta

    async def _change(self, key: str, step: int) -> None:
        """Some are asked for once more: the answer is the same."""
        for _ in range(1 + step % 2):
            if step % 3:
                changed = await self._insist(lambda client: client.set("c", 1_000_000 * step, key=key))
            else:
                changed = await self._insist(lambda client: client.delete("c", key=key))
            assert self.changes.setdefault(key, changed) == changed

    async def _insist(self, ask: Callable[[AsyncClient], Awaitable[T]]) -> T:
        while True:
            try:
                async with AsyncClient(self.url, patience=0.5) as client:
                    return await ask(client)
            except UnavailableError:
                await asyncio.sleep(0.01)


async def test_sets_and_increments_are_counted_once_whoever_is_killed(tmp_path: Path) -> None:
    traffic = Traffic()
    async with processes(tmp_path, tmp_path / "log", **SOON) as started:
        running = await started.start("up", "--port", "0")
        other = await started.start("ingest", "--port", "0")
        traffic.url = other.url
        clients = [asyncio.create_task(traffic.run(number)) for number in range(CLIENTS)]
        for life in range(1, LIVES):
            while traffic.steps < life * CLIENTS * STEPS // LIVES:
                await asyncio.sleep(0.002)
            await (running if life % 2 else other).end(signal.SIGKILL)
            if life % 2:
                running = await started.start("up", "--port", "0")
            else:
                other = await started.start("ingest", "--port", "0")
            traffic.url = other.url
        await asyncio.gather(*clients)
        async with asyncio.timeout(60):
            while await metric(running.url, "countersink_pending_increments"):
                await asyncio.sleep(0.02)
        async with AsyncClient(running.url) as client:
            left = (await client.get("c", max_age=0)).value
        assert sum(one.before - one.after for one in traffic.changes.values()) + left == traffic.counted
        assert await metric(running.url, "countersink_drift_increments") == 0
        audit = await started.command("audit")
        assert (audit.code, "0 differ" in audit.out) == (0, True), audit


COUNTERS: Final = 600
IN_A_BATCH: Final = 100
ROUNDS: Final = 3
PAGES: Final = [f"page:{number:05}" for number in range(COUNTERS)]


async def test_each_series_is_exact_whoever_is_killed(tmp_path: Path) -> None:
    settings = SOON | {"COUNTERSINK_WINDOWS": "page:=minute/2d,hour/90d"}
    begun = datetime.now(UTC).replace(second=0, microsecond=0)
    async with processes(tmp_path, tmp_path / "log", **settings) as started, aiohttp.ClientSession() as session:
        ingest = await started.start("ingest", "--port", "0")
        flusher = await started.start("flusher")
        for number, begin in itertools.product(range(ROUNDS), range(0, COUNTERS, IN_A_BATCH)):
            deltas = dict.fromkeys(PAGES[begin : begin + IN_A_BATCH], 1)
            accepted = asyncio.create_task(accept(session, [ingest.url], deltas, f"{number}-{begin}"))
            if begin == COUNTERS // 2:
                await flusher.end(signal.SIGKILL)
                await ingest.end(signal.SIGKILL)
                ingest = await started.start("ingest", "--port", str(ingest.port))
                flusher = await started.start("flusher")
            await accepted
        early = await series(session, ingest.url, PAGES[-1], "by=hour")
        is_over = datetime.now(UTC).hour != begun.hour  # of an hour that is over, nothing may be pending
        assert (early["total"], early["exact"] or is_over) == (ROUNDS, True)
        async with asyncio.timeout(60):
            while (await _pending(session, ingest.url)) != 0:
                await asyncio.sleep(0.1)
        asked = f"by=minute&from={begun:%Y-%m-%dT%H:%M:%SZ}"
        first, last = (f"{when:%Y-%m-%dT%H:%M:%SZ}" for when in (begun, datetime.now(UTC)))
        for name in PAGES:
            found = await series(session, ingest.url, name, asked)
            assert (found["total"], found["exact"]) == (ROUNDS, True), found
            assert all(first <= point["from"] <= last for point in found["points"] if point["count"])
        for name in PAGES[::60]:
            assert (await series(session, ingest.url, name, "by=hour"))["total"] == ROUNDS


async def _pending(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/v1/counters?{'&'.join(f'name={name}' for name in PAGES)}&max_age=0") as answer:
        return sum(one["pending"] for one in (await answer.json())["counters"])


LIMITS: Final = "page:=40,=50"


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


FED: Final = ["page:a", "page:b", "page:c", "quota:x"]
EACH: Final = 60
"""Increments of each of them."""
FEED_LIVES: Final = 4
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Consumer:
    """Keeps the greatest sequence, and refuses an event now and then."""

    def __init__(self) -> None:
        self.table: dict[str, tuple[int, int]] = {}
        self.reached: set[str] = set()
        self.chance = random.Random(1)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        told = request.headers
        signed = signatures(keys_of(SECRET), told["webhook-id"], int(told["webhook-timestamp"]), body)
        assert told["webhook-signature"] == signed
        if self.chance.random() < 0.1:
            return web.Response(status=503)
        event = json.loads(body)
        data = event["data"]
        if event["type"] == "countersink.threshold.reached":
            self.reached.add(event["id"])
        else:
            row = (data["sequence"], data["value"])
            self.table[data["counter"]] = max(self.table.get(data["counter"], row), row)
        return web.Response(status=503 if self.chance.random() < 0.05 else 204)  # the answer may be lost, too

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_post("/", self.take)
        async with serving(web.AppRunner(application)) as port:
            yield f"http://127.0.0.1:{port}/"


async def test_a_consumer_has_every_counter_and_threshold_whoever_is_killed(tmp_path: Path) -> None:
    consumer = Consumer()
    settings = SOON | {"COUNTERSINK_FLUSH_INTERVAL": "0.02"}
    async with consumer.listening() as url, processes(tmp_path, tmp_path / "log", **settings) as started:
        tells = {
            "COUNTERSINK_FEED": "page:=0s,=1s",
            "COUNTERSINK_THRESHOLDS": "page:=every 5,quota:=at 7 50 100000",
            "COUNTERSINK_FEED_TO": url,
            "COUNTERSINK_FEED_SECRET": SECRET,
        }
        running = await started.start("up", "--port", "0", **tells)
        with pytest.raises(AssertionError, match="ended with 1"):  # before it says that it is up
            await started.start("flusher", **tells | {"COUNTERSINK_FEED": "=2s"})
        other = await started.start("ingest", "--port", "0")  # it knows nothing of the feed, and sets counters
        total = dict.fromkeys(FED, 0)
        steps = 0

        async def count(name: str) -> None:
            nonlocal steps
            for step in range(EACH):
                while True:
                    try:
                        async with AsyncClient(other.url, patience=0.5) as client:
                            await client.increment(name, 3, id=f"{name}-{step}")
                        break
                    except UnavailableError:
                        await asyncio.sleep(0.01)
                total[name] += 3
                steps += 1

        counting = [asyncio.create_task(count(name)) for name in FED]
        for life in range(1, FEED_LIVES):
            while steps < life * EACH * len(FED) // FEED_LIVES:
                await asyncio.sleep(0.002)
            await running.end(signal.SIGKILL)
            running = await started.start("up", "--port", "0", **tells)
        await asyncio.gather(*counting)
        async with AsyncClient(other.url) as client:
            await client.set("other", 4)
        total["other"] = 4
        needed = {f"0/{level}/{name}" for name in FED[:3] for level in range(5, total[name] + 1, 5)}
        needed |= {"0/7/quota:x", "0/50/quota:x"}
        async with asyncio.timeout(120):
            while {name: value for name, (_, value) in consumer.table.items()} != total or consumer.reached != needed:
                await asyncio.sleep(0.05)


LETTERS: Final = 1_000
RULE: Final = (
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
        await until(lambda: letters(file) == LETTERS)
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
