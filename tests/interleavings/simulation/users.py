"""Those who count and those who read, and what they do when there is no answer."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ingest.accept.drafts import Batch, Draft
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest
from shared.model.buckets import WallSeconds
from shared.model.errors import BrokerRejectedError, CountersinkError
from shared.model.receipts import key_of_set
from shared.model.words import Increment, Message, Reading
from shared.runtime.ids import of_key
from tests.interleavings.simulation.loop import NOBODY
from tests.interleavings.steps.changes import BASE
from tests.world.series import everything

if TYPE_CHECKING:
    from tests.interleavings.simulation.system import Ingest, System

T = TypeVar("T")
COUNTERS = ("a", "b", "c")
Before = tuple[int, int, int]
"""What `History.before` says."""


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
        whole = Batch({counter: delta}, {}, [], 1)
        add: dict[str, Any] = {
            "plain": lambda: ingest.publishing.add(counter, delta),
            "id": lambda: ingest.publishing.add_keyed(Increment(counter, delta, name)),
            "batch": lambda: ingest.publishing.add_batch(whole, envelope_id=of_key(name))[0],
        }
        if not await self._ask(ingest, self._handle(ingest, add[kind])):
            return False
        self._history.answered(counter, bit)
        return True

    async def _ask(self, ingest: "Ingest", asked: Coroutine[Any, Any, T]) -> T | None:
        """What it answers in time, if it does and is no error."""
        task = self._loop.start(ingest.owner, asked)
        await asyncio.wait([task], timeout=self._system.patience)
        if not task.done() or task.cancelled() or isinstance(task.exception(), CountersinkError):
            return None
        return task.result()

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
        taken = False
        for _ in range(self._random.randint(1, 2)):
            with contextlib.suppress(BrokerRejectedError):
                await self._system.broker.publish([message])
                taken = True
            await asyncio.sleep(self._random.uniform(0, 1))
        if not taken:
            return
        if self._system.written:
            self._history.published(counter, bit)
        else:
            self._history.answered(counter, bit)

    async def changing(self, seconds: float) -> None:
        """Somebody who sets counters, each under a key of its own, and asks again if there is no answer."""
        while self._loop.time() < seconds:
            await asyncio.sleep(self._random.expovariate(4))
            counter, kind = self._random.choice(COUNTERS), self._random.choice([SET, SET, RESET, DELETE])
            number = self._history.sets(counter)
            wish = ChangeRequest(kind, BASE * number if kind == SET else 0, f"set-{number}")
            before = self._history.before(counter, "")
            while not await self._change(counter, wish, before) and self._loop.time() < seconds:
                await asyncio.sleep(self._random.uniform(0, 1))
            if self._random.random() < 0.3:
                await self._change(counter, wish, before)

    async def _change(self, counter: str, wish: ChangeRequest, before: tuple[int, int, int]) -> bool:
        """Whether it was answered 200."""
        ingest = self._random.choice(self._system.ingests)
        change = await self._ask(ingest, ingest.setter.set(counter, wish))
        if change is None:
            return False
        store, receipt = self._system.store, key_of_set(counter, wish.kind, wish.key or "")
        assert change == store.changes[counter][receipt], f"{counter}: the answer is not what was done"
        self._history.was_set(counter, store.epochs(counter), store.epoch_of(counter, receipt), before)
        return True

    async def reading(self, seconds: float) -> None:
        while self._loop.time() < seconds:
            max_age = self._random.choice([None, 0.0, 60.0])
            await self.read(self._random.choice(self._system.readers()), self._random.sample(COUNTERS, 2), max_age)
            if self._random.random() < 0.2:
                await self.read_series(self._random.choice(self._system.readers()), self._random.choice(COUNTERS))
            if self._random.random() < 0.2:
                await self.read_largest(self._random.choice(self._system.readers()), self._random.randint(1, 3))
            await asyncio.sleep(self._random.expovariate(6))

    async def read(
        self, ingest: "Ingest", counters: list[str], max_age: float | None, *, at_rest: bool = False
    ) -> bool:
        """Whether there was an answer."""
        before = {counter: self._history.before(counter, ingest.owner) for counter in counters}
        task = self._loop.start(ingest.owner, ingest.reader.read(counters, max_age))
        await asyncio.wait([task], timeout=self._system.patience)
        if task.done():
            return self._judge(task, ingest.owner, before, at_rest=at_rest)
        task.add_done_callback(lambda task: self._judge_late(task, ingest.owner, before), context=NOBODY)
        return False

    def _judge(
        self, task: "asyncio.Task[list[Reading]]", owner: str, before: dict[str, Before], *, at_rest: bool = False
    ) -> bool:
        if task.cancelled() or isinstance(task.exception(), CountersinkError):
            return False
        if not self._history.judges(task.result()):
            return False
        for reading in task.result():
            epochs = self._system.store.epochs(reading.name)
            self._history.read(reading, owner, before[reading.name], epochs, at_rest=at_rest)
        return True

    def _judge_late(self, task: "asyncio.Task[list[Reading]]", owner: str, before: dict[str, Before]) -> None:
        """A process that stood still answers hours later. Nobody waits any more; it has to be right all the same."""
        try:
            self._judge(task, owner, before)
        except Exception as error:  # raised by the next check
            self._system.mistakes.append(error)

    async def read_series(self, ingest: "Ingest", counter: str) -> bool:
        """Whether there was an answer that promises anything: its points have all that was answered, once."""
        answered = self._history.before(counter, "")[0]
        series = await self._ask(ingest, ingest.series.read(everything(counter, "minute")))
        if series is None or not series.exact:
            return False
        self._history.read_series(series, answered)
        return True

    async def read_largest(self, ingest: "Ingest", limit: int) -> None:
        """Each total is right, the largest comes first, and if all have room, one that is not there is 0."""
        reader = f"{ingest.owner} by value"  # it keeps no bases, so what it sees unanswered is its own
        before = {counter: self._history.before(counter, reader) for counter in COUNTERS}
        answer = await self._ask(ingest, ingest.largest.read([""], limit))
        if answer is None:
            return
        found, exact = answer
        assert [*found] == sorted(found, key=lambda one: (-one.value, one.name))
        if not self._history.judges(found) or not exact:
            return
        others = {*COUNTERS} - {one.name for one in found} if limit == len(COUNTERS) else ()
        none = Reading("", 0, 0, exact=True, as_of=WallSeconds(0), shards=0, exists=False)
        for reading in (*found, *(none._replace(name=name) for name in others)):
            epochs = self._system.store.epochs(reading.name)
            self._history.read(reading, reader, before[reading.name], epochs)

    async def count_once(self) -> None:
        """Somebody who counts now and then."""
        counter = self._random.choice(COUNTERS)
        if self._history.room(counter):
            await self._try(counter, self._history.tries(counter), "plain")
