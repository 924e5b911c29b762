"""Those who count and those who read, and what they do when there is no answer."""

import asyncio
from typing import TYPE_CHECKING, Any

from ingest.batch import Batch
from ingest.coalescer import Draft
from shared.errors import CountersinkError
from shared.ids import of_key
from shared.words import Increment, Message

if TYPE_CHECKING:
    from tests.simulation.system import Ingest, System

COUNTERS = ("a", "b", "c")


class Users:
    """Of one system."""

    def __init__(self, system: "System") -> None:
        self._system = system
        self._random = system.random
        self._history = system.history
        self._loop = system.loop

    async def counting(self, seconds: float) -> None:
        """A client: counts, and sends again under the same id what was not answered."""
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            counter = self._random.choice(COUNTERS)
            if not self._history.room(counter):
                return
            kind = self._random.choice(["plain", "plain", "id", "batch", "foreign"])
            what = self._history.tries(counter)
            if kind == "foreign":
                await self._foreign(counter, what)
            elif kind == "plain":
                await self._try(counter, what, kind)
            else:
                while not await self._try(counter, what, kind) and self._loop.time() < until:
                    await asyncio.sleep(self._random.uniform(0, 1))
                if self._random.random() < 0.3:  # once more, though it was answered
                    await self._try(counter, what, kind)
            await asyncio.sleep(self._random.expovariate(8))

    async def _try(self, counter: str, bit: int, kind: str) -> bool:
        """Whether it was answered 202."""
        ingest = self._random.choice(self._system.ingests)
        delta, name = self._history.delta(bit), f"{counter}-{bit}"
        add: dict[str, Any] = {
            "plain": lambda: ingest.publishing.add(counter, delta),
            "id": lambda: ingest.publishing.add_keyed(Increment(counter, delta, name)),
            "batch": lambda: ingest.publishing.add_whole(Batch({counter: delta}, {}, [], 1), of_key(name))[0],
        }
        with self._system.acting(ingest.owner):
            handler = self._loop.create_task(self._handle(ingest, add[kind]))
        await asyncio.wait([handler])
        if handler.cancelled() or not handler.result():
            return False
        self._history.answered(counter, bit)
        return True

    async def _handle(self, ingest: "Ingest", add: Any) -> bool:
        try:
            draft: Draft = add()
            await ingest.publishing.durable(draft)
        except CountersinkError:
            return False
        return ingest.owner not in self._system.network.dead

    async def _foreign(self, counter: str, bit: int) -> None:
        """Somebody publishes without us, twice under one id."""
        data = b'{"counter":"%b","delta":%d}' % (counter.encode(), self._history.delta(bit))
        message = Message(data, {"ce-source": "test", "ce-id": f"{counter}-{bit}"})
        for _ in range(self._random.randint(1, 2)):
            await self._system.broker.publish([message])
            await asyncio.sleep(self._random.uniform(0, 1))
        if self._system.written:
            self._history.published(counter, bit)
        else:
            self._history.answered(counter, bit)

    async def reading(self, seconds: float) -> None:
        while self._loop.time() < seconds:
            max_age = self._random.choice([None, 0.0, 60.0])
            await self.read(self._random.choice(self._system.ingests), self._random.sample(COUNTERS, 2), max_age)
            await asyncio.sleep(self._random.expovariate(6))

    async def read(
        self, ingest: "Ingest", counters: list[str], max_age: float | None, *, at_rest: bool = False
    ) -> bool:
        """Whether there was an answer."""
        before = {counter: self._history.before(counter, ingest.owner) for counter in counters}
        with self._system.acting(ingest.owner):
            task = self._loop.create_task(ingest.reader.read(counters, max_age))
        await asyncio.wait([task])
        if task.cancelled() or isinstance(task.exception(), CountersinkError):
            return False
        for reading in task.result():
            self._history.read(reading, ingest.owner, before[reading.name], at_rest=at_rest)
        return True
