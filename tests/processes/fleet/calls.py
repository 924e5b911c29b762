"""Requests to a fleet, and what is learnt from each answer: an increment, or a reading that must be right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from shared.model.errors import TransientError
from shared.model.words import Message
from tests.processes.fleet.pairs import Pair
from tests.processes.fleet.slots import Process
from tests.processes.fleet.truth import Truths, digits

PATIENCE = aiohttp.ClientTimeout(total=4)
"""Of a client: whom it asks may be frozen."""
NO_ANSWER = (aiohttp.ClientConnectionError, TimeoutError)
Item = tuple[str, int, int]
"""Counter, bit and delta of an increment."""


@dataclass
class Request:
    """What can be sent again under the same id, by any ingest, and counts once."""

    path: str
    body: Any
    headers: dict[str, str]
    items: Sequence[Item]


@dataclass
class Foreign:
    """What somebody else publishes, and may publish again under the same id."""

    message: Message
    items: Sequence[Item]


class Calls:
    """What all clients know together."""

    def __init__(self, pair: Pair, session: aiohttp.ClientSession) -> None:
        self._pair = pair
        self._session = session
        self._shards: dict[str, int] = {}
        self._tried: set[bytes] = set()
        self._published: set[bytes] = set()
        """Rubbish, as that before."""
        self.truths = Truths()
        self.answers = self.reads = 0

    async def publish(self, foreign: Foreign) -> None:
        data = {foreign.message.data} if not foreign.items else set()
        self._tried |= data
        try:
            await self._pair.publish([foreign.message])
        except TransientError:  # who holds the file is frozen
            return
        self._published |= data
        self._answered(foreign.items)

    async def post(self, ingest: Process, request: Request) -> None:
        try:
            async with self._session.post(
                ingest.url + request.path, json=request.body, headers=request.headers, timeout=PATIENCE
            ) as response:
                said = await response.text()
        except NO_ANSWER:
            return
        assert response.status in {202, 503}, said
        if response.status == 202:
            self._answered(request.items)
            for counter, bit, _ in request.items:
                ingest.known[counter] = ingest.known.get(counter, 0) | bit

    def _answered(self, items: Sequence[Item]) -> None:
        self.answers += 1
        for counter, bit, _ in items:
            self.truths.answer(counter, bit)

    async def read(self, ingest: Process, *, fresh: bool) -> bool:
        """All counters from one ingest; whether all is settled. It knows at least what it has answered itself."""
        before = dict(self.truths.answered() if self._pair.exact else ingest.known)
        names = "&".join(f"name={name}" for name in self.truths.counters)
        url = f"{ingest.url}/v1/counters?{'max_age=0&' if fresh else ''}{names}"
        try:
            async with self._session.get(url, timeout=PATIENCE) as response:
                answer = await response.json()
        except NO_ANSWER:
            return False
        assert response.status in {200, 503}, answer
        if response.status == 503:
            return False
        self.reads += 1
        settled = [self._settled(reading, before.get(reading["name"], 0)) for reading in answer["counters"]]
        return all(settled)  # each has been checked

    def _settled(self, reading: dict[str, Any], before: int) -> bool:
        truth = self.truths.of(reading["name"])
        mask = digits(reading["value"])
        assert before & ~mask == 0, f"an increment is missing: {reading}"
        assert mask & ~truth.tried == 0, f"something was counted that nobody sent: {reading}"
        enough = reading["shards"] >= self._shards.get(reading["name"], 0)
        return enough and not reading["pending"] and truth.answered & ~mask == 0

    async def raise_shards(self, ingest: Process, counter: str, shards: int) -> None:
        url = f"{ingest.url}/v1/counters/{counter}/shards"
        try:
            async with self._session.put(url, json={"shards": shards}, timeout=PATIENCE) as response:
                answer = await response.json()
        except NO_ANSWER:
            return
        assert response.status in {200, 503}, answer
        if response.status == 200:
            assert answer["shards"] >= shards
            self._shards[counter] = max(self._shards.get(counter, 0), answer["shards"])

    async def nothing_is_left(self) -> None:
        """Every message is settled, or where it belongs."""
        assert await self._pair.left() == 0
        letters = {letter.data for letter in await self._pair.dead_letters()}
        assert self._published <= letters <= self._tried
