"""Processes are killed while they count, set and tell: in the end a consumer has every counter, and every threshold."""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from countersink import AsyncClient, UnavailableError
from shared.receivers.web_hook import keys_of, signatures
from tests.processes.harness import processes
from tests.world.serving import serving

NAMES = ["page:a", "page:b", "page:c", "quota:x"]
STEPS = 60
LIVES = 4
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


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
    settings = {"COUNTERSINK_FLUSH_INTERVAL": "0.02", "COUNTERSINK_LEASE": "1"}
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
        total = dict.fromkeys(NAMES, 0)
        steps = 0

        async def count(name: str) -> None:
            nonlocal steps
            for step in range(STEPS):
                while True:
                    try:
                        async with AsyncClient(other.url, patience=0.5) as client:
                            await client.increment(name, 3, id=f"{name}-{step}")
                        break
                    except UnavailableError:
                        await asyncio.sleep(0.01)
                total[name] += 3
                steps += 1

        counting = [asyncio.create_task(count(name)) for name in NAMES]
        for life in range(1, LIVES):
            while steps < life * STEPS * len(NAMES) // LIVES:
                await asyncio.sleep(0.002)
            await running.end(signal.SIGKILL)
            running = await started.start("up", "--port", "0", **tells)
        await asyncio.gather(*counting)
        async with AsyncClient(other.url) as client:
            await client.set("other", 4)
        total["other"] = 4
        needed = {f"0/{level}/{name}" for name in NAMES[:3] for level in range(5, total[name] + 1, 5)}
        needed |= {"0/7/quota:x", "0/50/quota:x"}
        async with asyncio.timeout(120):
            while {name: value for name, (_, value) in consumer.table.items()} != total or consumer.reached != needed:
                await asyncio.sleep(0.05)
