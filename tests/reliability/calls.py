"""Requests of clients, each known to the last increment, and what their answers say of the truth; what readings have to
keep to, by what their pair promises and what they say of themselves.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import aiohttp

from shared.model.errors import TransientError
from shared.model.words import Message
from tests.processes.fleet.calls import NO_ANSWER, Item, Request
from tests.processes.fleet.pairs import Pair
from tests.processes.fleet.truth import Truths, split

PAGE = 300
"""Counters in one request."""
CLOSE = 0.002
"""Seconds between two instants that milliseconds can't tell apart."""


class Readings:
    """All that were taken of one set of counters, from whatever process."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._applied: dict[str, list[tuple[float, int]]] = {}
        self.count = self.exact = 0

    def check(self, reading: dict[str, Any], answered: int, tried: int) -> None:
        """Masks: `answered` before the read began; `tried` when it had ended. No delta is negative."""
        self.count += 1
        exact = reading["exact"]
        self.exact += exact
        mask, more = split(reading["value"])
        assert reading["value"] == reading["applied"] + reading["pending"], f"it does not add up: {reading}"
        assert exact or not self._pair.exact, f"not exact: {reading}"
        assert not more, f"an increment was counted twice: {reading}"
        assert not mask & ~tried, f"something was counted that nobody sent: {reading}"
        if exact:
            assert not answered & ~mask, f"an increment is missing: {reading}"
        if self._pair.instants:
            self._in_order(reading["name"], datetime.fromisoformat(reading["as_of"]).timestamp(), reading["applied"])

    def _in_order(self, name: str, time: float, applied: int) -> None:
        """By the store's clock, the applied part never becomes less for any reader."""
        before = self._applied.setdefault(name, [])
        for other_time, other in before:
            if other_time < time - CLOSE:
                assert other <= applied, (name, other_time, other, time, applied)
            elif other_time > time + CLOSE:
                assert applied <= other, (name, other_time, other, time, applied)
        before.append((time, applied))
        del before[:-200]


class Calls:
    """What all clients of a scene know together."""

    def __init__(self, pair: Pair, session: aiohttp.ClientSession, truths: Truths, refusals: Collection[int]) -> None:
        self._pair = pair
        self._session = session
        self._refusals = refusals
        self.truths = truths
        self.readings = Readings(pair)
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.rubbish: set[bytes] = set()
        """Published and answered."""
        self.rubbish_tried: set[bytes] = set()
        self.published: dict[str, int] = {}
        """Masks of what others published: with Redis an exact reading knows of it when it is applied."""
        self.answers = 0
        """Requests that were."""

    def answered(self, items: Collection[Item]) -> None:
        self.answers += 1
        for counter, bit, _ in items:
            self.truths.answer(counter, bit)

    @contextmanager
    def judged(self) -> Iterator[None]:
        """What a check finds is remembered, and the load goes on."""
        try:
            yield
        except AssertionError as error:
            self.wrong.append(str(error))

    async def post(self, url: str, request: Request) -> bool:
        """Whether it was accepted."""
        try:
            async with self._session.post(url + request.path, json=request.body, headers=request.headers) as response:
                said = await response.text()
        except NO_ANSWER:
            self.errors["no answer"] += 1
            return False
        if response.status != 202:
            self._refused(response, said)
            return False
        self.answered(request.items)
        return True

    def _refused(self, response: aiohttp.ClientResponse, said: str) -> None:
        self.errors[str(response.status)] += 1
        with self.judged():
            assert response.status in self._refusals, f"{response.status}: {said}"
            assert int(response.headers.get("Retry-After", 0)) > 0, f"{response.status} without Retry-After: {said}"

    async def publish(self, message: Message, items: Collection[Item]) -> bool:
        rubbish = set() if items else {message.data}
        self.rubbish_tried |= rubbish
        try:
            await self._pair.publish([message])
        except TransientError:
            return False
        self.rubbish |= rubbish
        self.answered(items)
        for counter, bit, _ in items:
            self.published[counter] = self.published.get(counter, 0) | bit
        return True

    async def get(self, url: str) -> tuple[int, str]:
        async with self._session.get(url) as response:
            return response.status, await response.text()

    async def send(self, url: str, body: object) -> tuple[int, str]:
        async with self._session.post(url, json=body) as response:
            return response.status, await response.text()

    async def raise_shards(self, url: str, counter: str, shards: int) -> None:
        try:
            async with self._session.put(f"{url}/v1/counters/{counter}/shards", json={"shards": shards}) as response:
                said = await response.text()
        except NO_ANSWER:
            return
        with self.judged():
            assert response.status in {200, *self._refusals}, said

    async def read(self, url: str, query: str, names: Collection[str]) -> list[Mapping[str, Any]]:
        """Nothing if it could not be said now. Each reading is checked by what it says of itself."""
        if not names:
            return []
        before = {name: self.truths.of(name).answered & ~self._unseen(name) for name in names}
        named = "&".join(f"name={name}" for name in names)
        try:
            async with self._session.get(f"{url}/v1/counters?{query}{named}") as response:
                answer = await response.json()
        except NO_ANSWER:
            return []
        if response.status != 200:
            with self.judged():
                assert response.status in self._refusals, answer
            return []
        for reading in answer["counters"]:
            with self.judged():
                name = reading["name"]
                self.readings.check(reading, before[name], self.truths.of(name).tried)
        found: list[Mapping[str, Any]] = answer["counters"]
        return found

    def _unseen(self, name: str) -> int:
        return 0 if self._pair.exact else self.published.get(name, 0)

    @staticmethod
    def applied(reading: Mapping[str, Any]) -> int:
        """The increments in its shards, as a mask."""
        return split(reading["applied"])[0]

    async def read_all(self, url: str, names: Iterable[str] = ()) -> dict[str, Mapping[str, Any]] | None:
        """These counters or all there are, from the store."""
        names = sorted(names or self.truths.counters)
        found: dict[str, Mapping[str, Any]] = {}
        for first in range(0, len(names), PAGE):
            some = await self.read(url, "max_age=0&", names[first : first + PAGE])
            found |= {reading["name"]: reading for reading in some}
        return found if len(found) == len(names) else None
