"""Clients, foreign publishers and readers at work on one set of counters, who know what the totals must be."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from shared.words import Message
from tests.fleet.pairs import Pair, empty, message
from tests.fleet.readings import Readings

COUNTERS = [f"likes:{number}" for number in range(4)]
PACE = 0.06
"""Seconds between two requests of one client: on a small machine emulators must keep up."""
REFUSED = {503}
NONSENSE = (b"no JSON %d", b'{"counter": %d}', b"[%d]", b'{"counters": {"%d": 0.5}}')


class Load:
    """What was tried, and what was answered; the difference is what nobody can know."""

    def __init__(self, pair: Pair, session: aiohttp.ClientSession, url: str, seed: int = 1) -> None:
        self._pair = pair
        self._session = session
        self._url = url
        self._random = random.Random(seed)
        self._done = asyncio.Event()
        self.tried: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.unsure: Counter[str] = Counter()
        """Of increments without an id that were not answered 202."""
        self.rubbish: set[bytes] = set()
        self.statuses: Counter[int] = Counter()
        self.shards = 1
        self.readings = Readings(pair)

    @asynccontextmanager
    async def running(self, clients: int = 6) -> Any:
        """Everybody works until the end of the block."""
        workers: list[Callable[[int], Coroutine[Any, Any, None]]] = [self._insistent] * clients
        workers += [self._careless, self._careless, self._foreign, self._grower, self._reader, self._reader]
        async with asyncio.TaskGroup() as tasks:
            for number, work in enumerate(workers):
                tasks.create_task(self._repeat(work, number))
            try:
                yield
            finally:
                self._done.set()

    async def _repeat(self, work: Callable[[int], Coroutine[Any, Any, None]], worker: int) -> None:
        for turn in itertools.count():
            if self._done.is_set():
                return
            await work(worker * 1_000_000 + turn)
            await asyncio.sleep(PACE)

    async def _insistent(self, number: int) -> None:
        """Sends under one id until it is told 202, and now and then once more."""
        kind = self._random.choice(("one", "one", "batch", "items"))
        counters = self._random.choices(COUNTERS, k=1 if kind == "one" else 5)
        headers: dict[str, str] = {}
        body: Any
        if kind == "one":
            path, body = f"/v1/counters/{counters[0]}", {"id": f"{number}"}
        elif kind == "batch":
            path, body, headers = "/v1/increments", [{"counter": c} for c in counters], {"Idempotency-Key": f"{number}"}
        else:
            path, body = "/v1/increments", [{"counter": c, "id": f"{number}-{k}"} for k, c in enumerate(counters)]
        self.tried.update(counters)
        again = self._random.random() < 0.1
        while await self._post(path, body, headers) != 202 or again:
            again = False
            await asyncio.sleep(PACE)
        self.answered.update(counters)

    async def _careless(self, _: int) -> None:
        """Without an id, so once: only a 202 says that it counts."""
        counter = self._random.choice(COUNTERS)
        self.tried[counter] += 1
        answered = await self._post(f"/v1/counters/{counter}", None, {}) == 202
        (self.answered if answered else self.unsure)[counter] += 1

    async def _post(self, path: str, body: Any, headers: dict[str, str]) -> int:
        with contextlib.suppress(aiohttp.ClientConnectionError, TimeoutError):
            async with self._session.post(self._url + path, json=body, headers=headers) as response:
                self.statuses[response.status] += 1
                said = await response.text()
                assert response.status in {202, *REFUSED}, said
                assert response.status == 202 or int(response.headers["Retry-After"]) > 0
                return response.status
        return 0

    async def _foreign(self, number: int) -> None:
        """Plain messages, one under an id that is sent twice, one without data, and rubbish."""
        counter = self._random.choice(COUNTERS)
        named = message(counter, 2, f"{number}")
        nonsense = (
            self._random.choice((b"no JSON %d", b'{"counter": %d}', b"[%d]", b'{"counters": {"%d": 0.5}}')) % number
        )
        self.tried[counter] += 6
        self.rubbish.add(nonsense)
        await self._pair.publish([named, Message(nonsense), message(counter, 3)])
        await self._pair.publish([empty(counter, 1), named])
        self.answered[counter] += 6

    async def _grower(self, number: int) -> None:
        """More shards now and then, up to 8."""
        if number % 50 == 49 and self.shards < 8:
            for counter in COUNTERS:
                url = f"{self._url}/v1/counters/{counter}/shards"
                async with self._session.put(url, json={"shards": self.shards + 1}) as response:
                    assert response.status in {200, *REFUSED}, await response.text()
            self.shards += 1

    async def _reader(self, _: int) -> None:
        before = self.answered.copy()
        for reading in await self.read(self._random.choice(("", "max_age=0&"))):
            self.readings.check(reading, before[reading["name"]], self.tried[reading["name"]])

    async def read(self, options: str = "max_age=0&") -> list[dict[str, Any]]:
        """Nothing if the answer was that it can't be said now."""
        query = "&".join(f"name={counter}" for counter in COUNTERS)
        async with self._session.get(f"{self._url}/v1/counters?{options}{query}") as response:
            assert response.status in {200, *REFUSED}, await response.text()
            return (await response.json())["counters"] if response.status == 200 else []

    async def at_rest(self, within: float = 30.0) -> None:
        """All is applied, and rubbish is where it belongs, with a reason."""
        await self.applied(within)
        letters = await self._pair.dead_letters()
        assert {letter.data for letter in letters} == self.rubbish
        assert all("must" in letter.reason or "is not" in letter.reason for letter in letters), letters

    async def applied(self, within: float = 30.0) -> None:
        """All is, nothing is missing, nothing is too much."""
        async with asyncio.timeout(within):
            while True:
                readings = await self.read()
                wrong = [one for one in readings if not self._settled(one)]
                if readings and not wrong:
                    break
                await asyncio.sleep(0.05)

    def _settled(self, reading: dict[str, Any]) -> bool:
        least = self.answered[reading["name"]]
        most = least + self.unsure[reading["name"]]
        assert reading["value"] <= most or not self._pair.once, (reading, most)
        return not reading["pending"] and least <= reading["value"] <= most
