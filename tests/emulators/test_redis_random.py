"""A fleet on a real Redis in disorder, by seeds: whenever a reading says exact, it holds every answered increment once.

Deltas and sets are those of tests/interleavings/steps/changes.py: a total says which increments it holds, and of which
set it is.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from functools import partial

import pytest

from shared.counters.reader import Reader
from shared.counters.setter import DELETE, RESET, SET, ChangeRequest, Setter
from shared.model.buckets import DAY, StoreMillis
from shared.model.errors import AlreadyAppliedError, CountersinkError, TransientError
from shared.model.fleet import Fleet as FleetWords
from shared.model.receipts import key_of_set
from shared.model.words import Commit, Envelope, Increment, Receipt, ShardAdd
from shared.redis.overlay import RedisOverlay
from tests.emulators.proxy import Proxy, proxy
from tests.emulators.redis_fixtures import Fleet, RedisServer, id_of
from tests.interleavings.simulation.history import History
from tests.interleavings.steps.changes import BASE, ChangedStore
from tests.world.scraping import until

COUNTERS = ("a", "b", "c", "d", "e")
LOOK = 0.1
"""Seconds for which a look serves readings."""
STEPS = 300
"""Of disorder, and more until some reading was exact and a set was made, which takes longer on a busy machine."""
MOST_STEPS = 20 * STEPS
CHANCES = {
    "write": 30.0,
    "read": 60.0,
    "set": 4.0,
    "apply": 10.0,
    "settle": 3.0,
    "cut": 3.0,
    "open": 8.0,
    "close": 1.2,
    "lose_answers": 0.7,
    "flush": 0.6,
    "crash": 0.8,
}
"""Of steps."""


@dataclass
class Process:
    overlay: RedisOverlay
    reader: Reader
    setter: Setter
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)


class Disorder:
    """What happens, and what is known to be true."""

    def __init__(self, seed: int, redis: RedisServer, fleet: Fleet, networks: list[Proxy]) -> None:
        self.random = random.Random(seed)
        self.redis = redis
        self.fleet = fleet
        self.networks = networks
        self.store = ChangedStore(fleet.clock)
        fleet.use(self.store)
        self.history = History(exactly=True, always=False)
        self.ids: dict[tuple[str, str], int] = {}
        self.broker: dict[str, tuple[Envelope, float]] = {}
        self.processes: list[Process] = []
        self.gone: dict[str, float] = {}
        """When which member died."""
        self.born = 0

    async def process(self, network: Proxy) -> Process:
        overlay = await self.fleet.process(f"redis://{network.address}/0", timeout=0.2, patience=0.2, longest_look=LOOK)
        reader = Reader(self.store, overlay, self.fleet.clock, cache_ttl=1.0)
        return Process(overlay, reader, Setter(reader, self.store, overlay, self.fleet.clock, DAY))

    async def write(self, index: int) -> None:
        process = self.processes[index]
        counter = self.random.choice(COUNTERS)
        if not self.history.room(counter):
            return
        self.born += 1
        name = f"e{self.born}"
        client_id = self.random.choice([None, None, "x", "y", "z"])
        if client_id is None:
            bit = self.history.tries(counter)
            envelope = Envelope(name, {counter: bit * bit})
        else:
            if (counter, client_id) not in self.ids:
                self.ids[counter, client_id] = self.history.tries(counter)
            bit = self.ids[counter, client_id]
            envelope = Envelope(name, {}, {}, (Increment(counter, bit * bit, client_id),))
        outcome = self.random.choices(["published", "lost", "unclear"], [8, 1, 1])[0]
        pause = self.random.choice([0, 0, 0.01, 0.3])
        self.run(process, self._write(process, envelope, counter, bit, outcome, pause))

    async def _write(  # noqa: PLR0917 - what was drawn
        self, process: Process, envelope: Envelope, counter: str, bit: int, outcome: str, pause: float
    ) -> None:
        with contextlib.suppress(TransientError):
            async with process.overlay.entered([envelope]):
                await asyncio.sleep(pause)
                if outcome != "lost":
                    self.broker[envelope.id] = (envelope, time.time())
                if outcome != "published":
                    raise TransientError("the broker says so")
                await asyncio.sleep(pause)
            self.history.answered(counter, bit)

    async def read(self, index: int) -> None:
        process = self.processes[index]
        counters = self.random.sample(COUNTERS, self.random.randint(1, 3))
        self.run(process, self._read(process, counters, self.random.choice([None, 0, 60])))

    async def _read(
        self, process: Process, counters: list[str], max_age: float | None, *, at_rest: bool = False
    ) -> bool:
        """Whether all of it was exact: the history knows what must be in it then."""
        reader = id_of(process.overlay)
        before = {name: self.history.before(name, reader) for name in counters}
        readings = await process.reader.read(counters, max_age)
        for one in readings:
            if self.history.judges([one]):
                self.history.read(one, reader, before[one.name], self.store.epochs(one.name), at_rest=at_rest)
        return all(one.exact for one in readings)

    async def set(self, index: int) -> None:
        process = self.processes[index]
        counter, kind = self.random.choice(COUNTERS), self.random.choice([SET, SET, RESET, DELETE])
        number = self.history.sets(counter)
        self.run(process, self._set(process, counter, ChangeRequest(kind, BASE * number * (kind == SET), f"{number}")))

    async def _set(self, process: Process, counter: str, wish: ChangeRequest) -> None:
        before = self.history.before(counter, "")
        await process.setter.set(counter, wish)
        now = self.store.epoch_of(counter, key_of_set(counter, wish.kind, wish.key or ""))
        self.history.was_set(counter, self.store.epochs(counter), now, before)

    def run(self, process: Process, coroutine: object) -> None:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)  # type: ignore[arg-type]
        process.tasks.add(task)

    async def apply(self, index: int = 0, *, everything: bool = False) -> None:
        """As a flusher does, and sometimes it does not tell."""
        names = [*self.broker]
        for name in names if everything else self.random.sample(names, self.random.randint(0, len(names))):
            envelope = self.broker.pop(name)[0]
            known = await self.store.receipts([item.key for item in envelope.keyed])
            new = {item.key: item for item in envelope.keyed if item.key not in known.found}
            adds = [ShardAdd(counter, 0, delta, 1) for counter, delta in envelope.sums.items()]
            adds += [ShardAdd(item.counter, 0, item.delta, 1) for item in new.values()]
            receipts = tuple(Receipt(key, StoreMillis(2**62)) for key in (envelope.key, *new))
            try:
                applied = await self.store.apply(Commit(receipts, tuple(adds)))
            except AlreadyAppliedError:
                applied = (await self.store.receipts([envelope.key])).time
            if everything or self.random.random() < 0.7:
                overlay = self.random.choice([self.flusher, self.processes[index].overlay])
                with contextlib.suppress(TransientError):
                    await overlay.settle([envelope.key], applied)

    async def evidence(self) -> None:
        """A member that is gone is forgotten as soon as nothing that it published can come any more."""
        while True:
            oldest = min((at for _, at in self.broker.values()), default=time.time())
            gone = {name for name, at in self.gone.items() if at < oldest}

            def step(fleet: FleetWords, _: int, gone: set[str] = gone) -> FleetWords | None:
                known = gone & fleet.apart().keys()
                return fleet.without(*known) if known else None

            await self.fleet.book.change(step)
            await asyncio.sleep(0.05)

    async def crash(self, index: int) -> None:
        process = self.processes[index]
        for task in process.tasks:
            task.cancel()
        await asyncio.gather(*process.tasks, return_exceptions=True)
        name = id_of(process.overlay)
        await self.fleet.crash(process.overlay)
        self.gone[name] = time.time()
        self.processes[index] = await self.process(self.networks[index])

    async def step(self) -> None:
        index = self.random.randrange(len(self.processes))
        (what,) = self.random.choices([*CHANCES], [*CHANCES.values()])
        await getattr(self, what)(index)
        await self.collect()

    async def cut(self, index: int) -> None:
        self.networks[index].cut()

    async def close(self, index: int) -> None:
        self.networks[index].close()

    async def lose_answers(self, index: int) -> None:
        self.networks[index].lose_answers()

    async def open(self, _: int) -> None:
        for network in self.networks:
            if self.random.random() < 0.5:
                network.cut()
                network.open()

    async def flush(self, _: int) -> None:
        await asyncio.to_thread(self.redis.ask, "FLUSHALL")

    async def settle(self, index: int) -> None:
        process = self.processes[index]
        keys = await process.overlay.unsettled(100)
        found = await self.store.receipts(keys)
        with contextlib.suppress(TransientError):
            await process.overlay.settle(found.found.keys(), found.time)

    async def collect(self) -> None:
        """Raise what a task has found wrong."""
        for process in self.processes:
            for task in [task for task in process.tasks if task.done()]:
                process.tasks.discard(task)
                if not task.cancelled():
                    error = task.exception()
                    if error is not None and not isinstance(error, CountersinkError):
                        raise error

    async def run_all(self) -> None:
        self.flusher = await self.fleet.process(member=False, longest_look=LOOK)
        self.processes = [await self.process(network) for network in self.networks]
        witness = asyncio.create_task(self.evidence())
        for number in range(MOST_STEPS):
            if number >= STEPS and self.history.exact and self.store.changes:
                break
            await self.step()
            await asyncio.sleep(self.random.choice([0, 0, 0.002, 0.01, 0.05]))
        for network in self.networks:
            network.cut()
            network.open()
        for process in self.processes:
            await asyncio.wait_for(asyncio.gather(*process.tasks, return_exceptions=True), 10)
        await self.collect()
        await self.apply(everything=True)
        for process in self.processes:
            # A connection that was cut may be missed only now, and what the process says is not exact again.
            await until(partial(self._read, process, [*COUNTERS], 0, at_rest=True))
        witness.cancel()


@pytest.mark.parametrize("seed", range(4))
async def test_exact_is_exact(seed: int, redis: RedisServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.fleet.LOOK_MARGIN", 0.05)
    monkeypatch.setattr("shared.redis.member.FIRST", 0.1)
    monkeypatch.setattr("shared.redis.member.LONGEST_WAIT", 0.5)
    async with contextlib.AsyncExitStack() as stack:
        networks = [await stack.enter_async_context(proxy(redis.host)) for _ in range(3)]
        disorder = Disorder(seed, redis, fleet, networks)
        await disorder.run_all()
        assert disorder.history.exact
        assert disorder.store.changes
        await fleet.close()
