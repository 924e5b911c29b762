"""The system: ingests, flushers, clients and readers, on a broker and a store, under faults drawn from one seed."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from flusher.flush import Tools
from flusher.policy import FlushPolicy
from flusher.shardbook import ShardBook
from flusher.worker import Flusher
from ingest.batch import Batch
from ingest.coalescer import Draft
from ingest.pace import Pace
from ingest.publishing import Publishing
from ingest.reader import Reader
from ingest.settling import Settling
from shared.backoff import Backoff
from shared.errors import CountersinkError
from shared.ids import of_key
from shared.memory.broker import MemoryBroker, MemoryOverlay
from shared.memory.overlay import ProcessOverlay
from shared.memory.store import MemoryStore
from shared.ports import Overlay
from shared.receipts import DAY
from shared.supervise import Stop, forever
from shared.words import Increment, Message
from tests.path.network import RemoteBroker, RemoteOverlay, RemoteStore, RemoteWrittenOverlay
from tests.simulation.history import History
from tests.simulation.loop import OWNER, VirtualLoop
from tests.simulation.network import TIMEOUT, Network

COUNTERS = ("a", "b", "c")
LEASE = 2.0
SECONDS = 5.0
"""Virtual ones, in which there are faults."""
LONGEST = 300.0
"""Virtual seconds after the last fault in which all must have been applied."""


class LoopClock:
    """Virtual time, and a date that may be wrong, differently in each process, and jump."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.off = 0.0

    def now(self) -> float:
        return 1_800_000_000 + self._loop.time() + self.off

    def monotonic(self) -> float:
        return self._loop.time()


@dataclass
class Ingest:
    owner: str
    publishing: Publishing
    reader: Reader
    clock: LoopClock


@dataclass
class System:
    """One run."""

    seed: int
    written: bool
    """Whether ingests write the overlay, as with Redis; otherwise the broker's messages are it."""
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    ingests: list[Ingest] = field(default_factory=list)
    flushers: dict[str, LoopClock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        # A broker whose messages are the overlay is a file of this machine: a publish is one transaction.
        once = frozenset() if self.written else frozenset({"publish"})
        self.network = Network(self.random, loss=self.random.choice([0.0, 0.02, 0.08]), once=once)
        self.names = (f"{kind}-{number}" for number in range(10**6) for kind in ("p",))
        self.minted = (f"minted-{number}" for number in range(10**6))
        self.history = History(exactly=self.written)
        self.mistakes: list[BaseException] = []

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        random.seed(self.seed)  # jitter, and the choice of shards
        try:
            self.loop.run_until_complete(self._main())
        finally:
            for owner in {*self.loop.tasks.values()}:
                self.loop.kill(owner)
            with contextlib.suppress(BaseException):
                self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            asyncio.set_event_loop(None)

    async def _main(self) -> None:
        clock = LoopClock(self.loop)
        self.broker = MemoryBroker(clock, lease=LEASE)
        self.store = MemoryStore(clock)
        self.overlay = ProcessOverlay(clock, exact=True) if self.written else MemoryOverlay(self.broker)
        for _ in range(self.random.randint(1, 3)):
            self._start_ingest()
        for _ in range(self.random.randint(1, 3)):
            self._start_flusher()
        users = [asyncio.create_task(self._counting(self._seconds())) for _ in range(self.random.randint(2, 6))] + [
            asyncio.create_task(self._reading()) for _ in range(2)
        ]
        chaos = asyncio.create_task(self._chaos())
        await asyncio.wait([chaos, *users])
        for task in (chaos, *users):
            task.result()
        self._raise()
        await self._heal()

    def _seconds(self) -> float:
        return self.random.uniform(1, SECONDS)

    def _start_ingest(self) -> None:
        owner, clock = next(self.names), LoopClock(self.loop)
        store = RemoteStore(self.network, owner, self.store)  # type: ignore[arg-type] # it calls no more than `call`
        overlay = self._overlay_of(owner)
        with self._as(owner):
            publishing = Publishing(
                RemoteBroker(self.network, owner, self.broker),  # type: ignore[arg-type]
                overlay,
                clock,
                pace=Pace(0.02, metered=self.written),
                max_waiting=1_000,
                mint=lambda: next(self.minted),
            )
            self.ingests.append(Ingest(owner, publishing, Reader(store, overlay, clock, cache_ttl=0.5), clock))
            self._go(forever(Settling(store, overlay).settle_once, 2.0))

    def _start_flusher(self) -> None:
        owner, clock = next(self.names), LoopClock(self.loop)
        store = RemoteStore(self.network, owner, self.store)  # type: ignore[arg-type]
        tools = Tools(
            store=store,
            subscription=RemoteBroker(self.network, owner, self.broker),  # type: ignore[arg-type]
            overlay=self._overlay_of(owner),
            book=ShardBook(store, clock, 1),
            clock=clock,
            retention=7 * DAY,
            backoff=Backoff,
        )
        flusher = Flusher(tools, FlushPolicy(0.3, 100, 10**6), topic="memory", lease=LEASE, ages=False)
        self.flushers[owner] = clock
        with self._as(owner):
            self._go(flusher.run(Stop(), 1.0))

    def _overlay_of(self, owner: str) -> Overlay:
        if isinstance(self.overlay, ProcessOverlay):
            return RemoteWrittenOverlay(self.network, owner, self.overlay)  # type: ignore[arg-type]
        return RemoteOverlay(self.network, owner, self.overlay)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def _as(self, owner: str) -> Iterator[None]:
        token = OWNER.set(owner)
        yield
        OWNER.reset(token)

    def _go(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        def ended(task: "asyncio.Future[Any]") -> None:
            if not task.cancelled() and task.exception() is not None:
                self.mistakes.append(task.exception())  # type: ignore[arg-type]

        self.loop.create_task(coroutine).add_done_callback(ended)

    def _raise(self) -> None:
        for mistake in self.mistakes:
            raise mistake

    async def _counting(self, seconds: float) -> None:
        """A client: counts, and sends again under the same id what was not answered."""
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            counter = self.random.choice(COUNTERS)
            if not self.history.room(counter):
                return
            kind = self.random.choice(["plain", "plain", "id", "batch", "foreign"])
            what = self.history.tries(counter)
            if kind == "foreign":
                await self._foreign(counter, what)
            elif kind == "plain":
                await self._try(counter, what, kind)
            else:
                while not await self._try(counter, what, kind) and self.loop.time() < until:
                    await asyncio.sleep(self.random.uniform(0, 1))
                if self.random.random() < 0.3:  # once more, though it was answered
                    await self._try(counter, what, kind)
            await asyncio.sleep(self.random.expovariate(8))

    async def _try(self, counter: str, bit: int, kind: str) -> bool:
        """Whether it was answered 202."""
        ingest = self.random.choice(self.ingests)
        delta, name = self.history.delta(bit), f"{counter}-{bit}"
        add: dict[str, Any] = {
            "plain": lambda: ingest.publishing.add(counter, delta),
            "id": lambda: ingest.publishing.add_keyed(Increment(counter, delta, name)),
            "batch": lambda: ingest.publishing.add_whole(Batch({counter: delta}, {}, [], 1), of_key(name)),
        }
        with self._as(ingest.owner):
            handler = self.loop.create_task(self._handle(ingest, add[kind]))
        await asyncio.wait([handler])
        if handler.cancelled() or not handler.result():
            return False
        self.history.answered(counter, bit)
        return True

    async def _handle(self, ingest: Ingest, add: Any) -> bool:
        try:
            draft: Draft = add()
            await ingest.publishing.durable(draft)
        except CountersinkError:
            return False
        return ingest.owner not in self.network.dead

    async def _foreign(self, counter: str, bit: int) -> None:
        """Somebody publishes without us, twice under one id."""
        data = b'{"counter":"%b","delta":%d}' % (counter.encode(), self.history.delta(bit))
        message = Message(data, {"ce-source": "test", "ce-id": f"{counter}-{bit}"})
        for _ in range(self.random.randint(1, 2)):
            await self.broker.publish([message])
            await asyncio.sleep(self.random.uniform(0, 1))
        if self.written:
            self.history.published(counter, bit)
        else:
            self.history.answered(counter, bit)

    async def _reading(self) -> None:
        while self.loop.time() < SECONDS:
            max_age = self.random.choice([None, 0.0, 60.0])
            await self._read(self.random.choice(self.ingests), self.random.sample(COUNTERS, 2), max_age)
            await asyncio.sleep(self.random.expovariate(6))

    async def _read(self, ingest: Ingest, counters: list[str], max_age: float | None) -> bool:
        """Whether there was an answer."""
        before = {counter: self.history.before(counter, ingest.owner) for counter in counters}
        with self._as(ingest.owner):
            task = self.loop.create_task(ingest.reader.read(counters, max_age))
        await asyncio.wait([task])
        if task.cancelled() or isinstance(task.exception(), CountersinkError):
            return False
        for reading in task.result():
            self.history.read(reading, ingest.owner, before[reading.name])
        return True

    async def _chaos(self) -> None:
        while self.loop.time() < SECONDS:
            await asyncio.sleep(self.random.expovariate(1.5))
            self._raise()
            self.random.choice(
                [self._kill_ingest, self._kill_flusher, self._freeze, self._stop_server, self._jump, self._grow]
            )()

    def _kill_ingest(self) -> None:
        ingest = self.random.choice(self.ingests)
        self.ingests.remove(ingest)
        self._kill(ingest.owner)
        self._start_ingest()

    def _kill_flusher(self) -> None:
        owner = self.random.choice([*self.flushers])
        del self.flushers[owner]
        self._kill(owner)
        self._start_flusher()

    def _kill(self, owner: str) -> None:
        self.network.dead.add(owner)
        self.loop.kill(owner)

    def _freeze(self) -> None:
        """Long enough for its leases to run out: it comes back as a zombie."""
        who = self.random.choice([*self.flushers, *(ingest.owner for ingest in self.ingests)])
        self.network.stopped[who] = self.loop.time() + self.random.uniform(0.1, 3 * LEASE)

    def _stop_server(self) -> None:
        call = self.random.choice(["apply", "publish", "pull", "ack", "view", "read", "confirm", "settle", "receipts"])
        self.network.stopped[call] = self.loop.time() + self.random.uniform(0.1, 3.0)

    def _jump(self) -> None:
        """A date is set, hours off, in one of the processes."""
        clocks = [*self.flushers.values(), *(ingest.clock for ingest in self.ingests)]
        self.random.choice(clocks).off = self.random.uniform(-7_200, 7_200)

    def _grow(self) -> None:
        self.loop.create_task(self.store.raise_shards(self.random.choice(COUNTERS), self.random.randint(1, 5)))

    async def _heal(self) -> None:
        """Without faults all is applied, and all reads agree with what was answered."""
        self.network.loss = 0.0
        self.network.stopped.clear()
        until = self.loop.time() + LONGEST
        while self.broker.unburied():
            self._raise()
            if self.loop.time() > until:
                raise AssertionError("messages stay in the broker")
            await asyncio.sleep(0.5)
        await asyncio.sleep(6 * TIMEOUT)  # what was late has come
        while self.broker.unburied():
            await asyncio.sleep(0.5)
        self.history.all_is_applied()
        for ingest in self.ingests:
            while not await self._read(ingest, [*COUNTERS], 0.0):
                await asyncio.sleep(0.5)
        self._raise()
