"""Clients that send until they are told 202, always under the same ids, and readers that know what must be there."""

import asyncio
import contextlib
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PATIENCE = 0.02
"""Seconds between two tries."""
COUNTERS = [f"likes:{number}" for number in range(5)]


@dataclass
class Tally:
    """What was sent and what was answered 202, per counter."""

    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    answered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    failures: int = 0
    reads: int = 0


class Client:
    """One connection pool, used by one task at a time."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tally: Tally, number: int) -> None:
        self._session = session
        self._url = url
        self._tally = tally
        self._number = number
        self._random = random.Random(number)

    async def send(self, done: asyncio.Event) -> None:
        """Increments with an id, batches under a key, batches of items with ids: each counts once it is answered."""
        for request in itertools.count():
            if done.is_set():
                return
            name = f"{self._number}-{request}"
            kind = self._random.choice(("one", "one", "batch", "items"))
            counters = self._random.choices(COUNTERS, k=1 if kind == "one" else 10)
            for counter in counters:
                self._tally.sent[counter] += 1
            if kind == "one":
                path = f"/v1/counters/{counters[0]}"
                await self._until_accepted(path, {"delta": 1, "id": name}, {})
            elif kind == "batch":
                items: list[dict[str, Any]] = [{"counter": counter} for counter in counters]
                await self._until_accepted("/v1/increments", items, {"Idempotency-Key": name})
            else:
                items = [{"counter": counter, "id": f"{name}-{k}"} for k, counter in enumerate(counters)]
                await self._until_accepted("/v1/increments", items, {})
            for counter in counters:
                self._tally.answered[counter] += 1

    async def _until_accepted(self, path: str, body: Any, headers: dict[str, str]) -> None:
        """Now and then once more after a 202, as a client whose own answer got lost would."""
        again = self._random.random() < 0.1
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
                async with self._session.post(self._url + path, json=body, headers=headers) as response:
                    await response.read()
                    assert response.status in {202, 503}, await response.text()
                    if response.status == 202:
                        if not again:
                            return
                        again = False
                        continue
            self._tally.failures += 1
            await asyncio.sleep(PATIENCE)

    async def read(self, done: asyncio.Event) -> None:
        """Every value is exact: all that had been answered before, and nothing that had not been sent."""
        query = "&".join(f"name={counter}" for counter in COUNTERS)
        while not done.is_set():
            before = dict(self._tally.answered)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
                async with self._session.get(f"{self._url}/v1/counters?{query}") as response:
                    answer = await response.json()
                for counter in answer["counters"]:
                    name, value = counter["name"], counter["value"]
                    assert counter["exact"]
                    assert before[name] <= value <= self._tally.sent[name], counter
                self._tally.reads += 1
            await asyncio.sleep(PATIENCE)


async def total_of(session: aiohttp.ClientSession, url: str) -> tuple[dict[str, int], int]:
    """Values, and how much of them is pending."""
    query = "&".join(f"name={counter}" for counter in COUNTERS)
    async with session.get(f"{url}/v1/counters?max_age=0&{query}") as response:
        counters = (await response.json())["counters"]
    return {c["name"]: c["value"] for c in counters}, sum(c["pending"] for c in counters)
