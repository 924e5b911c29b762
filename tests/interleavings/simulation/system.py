"""The system: ingests and flushers on a broker and a store, with users, under faults drawn from one seed."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flusher.flush.commit_loop import FlushTools
from flusher.flush.flusher import BacklogWitness, Flusher
from flusher.flush.window import FlushPolicy
from flusher.shards import Growth
from ingest.accept.drafts import Pace
from ingest.accept.publishing import Publishing, settle_due
from ingest.accept.spool import Spool
from shared.counters.reader import Largest, Reader
from shared.counters.series import SeriesReader
from shared.counters.setter import Setter
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY, HOUR, Millis, Monotonic, WallSeconds
from shared.model.errors import StoodStillError
from shared.model.receipts import Promise, promised
from shared.ports.broker import Publisher
from shared.ports.overlay import Overlay
from shared.runtime.retry import Stop, forever
from tests.interleavings.simulation.chaos import Chaos
from tests.interleavings.simulation.conservation import CountingApart, CountingBroker, check
from tests.interleavings.simulation.history import History
from tests.interleavings.simulation.loop import NOBODY, OWNER, VirtualLoop
from tests.interleavings.simulation.network import TIMEOUT, Network
from tests.interleavings.simulation.poison import PickyStore, replaying
from tests.interleavings.simulation.users import COUNTERS, Users
from tests.interleavings.steps.network import RemoteBroker, RemoteDeadLetters, remote_overlay, remote_store
from tests.world.flushing import tools_of
from tests.world.memory.broker import MemoryBroker, MemoryOverlay
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.series import ALL_KEPT

LEASE = 2.0
SECONDS = 5.0
"""Virtual ones, in which there are faults."""
LONGEST = 300.0
"""Virtual seconds after the last fault in which all must have been applied."""
READ_LATELY = 0.5
"""How often a counter of an envelope was read lately, so that flushers hurry."""
RETENTIONS = (HOUR // 6, DAY, 7 * DAY)
SPOOL_AGES = (HOUR, DAY, 9 * DAY)
"""Milliseconds, as people set them: each flusher has the settings of the time when it was started."""
LEAPS = (0.1, 1.2, 8.5, 17.5, 40.0)
"""Days for which nobody counts, while somebody stands still."""


class LoopClock:
    """Virtual time, and a date that may be wrong, differently in each process, and jump."""

    def __init__(self, loop: VirtualLoop, *, off: float = 0.0, start: float = 0.0, rate: float = 1.0) -> None:
        self._loop = loop
        self._start = start
        self._rate = rate
        self.off = off

    def now(self) -> WallSeconds:
        return WallSeconds(1_800_000_000 + self._loop.time() + self.off)

    def monotonic(self) -> Monotonic:
        return Monotonic(self._start + self._loop.time() * self._rate)


@dataclass
class Ingest:
    owner: str
    publishing: Publishing
    reader: Reader
    largest: Largest
    series: SeriesReader
    setter: Setter
    clock: LoopClock
    disk: MemoryBroker | None
    """Its spool's, which outlives it."""


@dataclass
class System:
    """One run."""

    seed: int
    written: bool
    """Whether ingests write the overlay, as with Redis, and have spools; otherwise the broker's messages are it."""
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    ingests: list[Ingest] = field(default_factory=list)
    flushers: dict[str, LoopClock] = field(default_factory=dict)
    stops: dict[str, Stop] = field(default_factory=dict)
    """Ends flushers in good order."""
    replayers: dict[str, LoopClock] = field(default_factory=dict)
    patience: float | None = None
    """Seconds that users wait for an answer."""
    disks: list[MemoryBroker] = field(default_factory=list)
    promise: Promise = field(default_factory=lambda: promised(Millis(7 * DAY), DAY))
    """What flushers are told to promise, now."""
    day: int = 0
    """The store's time when days passed last."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        # A broker whose messages are the overlay is a file of this machine: a publish is one transaction.
        once = frozenset() if self.written else frozenset({"publish"})
        self.network = Network(self.random, loss=self.random.choice([0.0, 0.02, 0.08]), once=once)
        self.names = (f"p-{number}" for number in range(10**6))
        self.minted = (f"minted-{number}" for number in range(10**6))
        self.history = History(exactly=self.written, always=not self.written)
        self.mistakes: list[BaseException] = []

    def run(self) -> None:
        random.seed(self.seed)  # jitter, and the choice of shards
        self.loop.run_to_end(self._main())

    async def _main(self) -> None:
        clock = LoopClock(self.loop)
        self.broker = (CountingApart if self.written else CountingBroker)(clock, lease=LEASE)
        self.store = PickyStore(clock, None if self.written else self.broker)
        self.overlay = ExactOverlay(clock) if self.written else MemoryOverlay(self.broker)
        for _ in range(self.random.randint(1, 3)):
            self.start_ingest(self._new_disk())
        for _ in range(self.random.randint(1, 3)):
            self.start_flusher()
        for _ in range(2):
            self.start_replayer()
        self.users = Users(self)
        chaos = Chaos(self, LEASE)
        await self._while_much_fails(chaos)
        while self.random.random() < 0.3:
            chaos.freeze_for_long()
            await self._leap()
            chaos.thaw()
            await self._while_much_fails(chaos)
        await self._heal()

    async def _while_much_fails(self, chaos: Chaos) -> None:
        seconds = self.random.uniform(1, SECONDS)
        until = self.loop.time() + SECONDS
        doing = [self.users.counting(seconds) for _ in range(self.random.randint(2, 6))]
        doing += [self.users.reading(until) for _ in range(2)]
        doing += [self.users.changing(until) for _ in range(self.random.randint(0, 3))]
        doing += [chaos.run(until)]
        await self._together(doing)

    async def _together(self, doing: Iterable[Coroutine[Any, Any, None]]) -> None:
        """All of them to their ends, also after one has failed."""
        tasks = [asyncio.create_task(one) for one in doing]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()
        self.check()

    async def _leap(self) -> None:
        """Days in which nothing happens but that receipts expire, once all is applied, and readers have heard of it."""
        await self._settled()
        if isinstance(self.overlay, ProcessOverlay):
            keys = {key for key, *_ in self.overlay._there.values()}
            applied = await self.store.receipts(keys)
            await self.overlay.settle(applied.found.keys(), applied.time)
        await self._pass_days()

    async def _pass_days(self, days: float = 0.0) -> None:
        self.day = await self.store.now()
        self.loop.leap((days or self.random.choice(LEAPS)) * DAY / 1_000)
        for ingest in self.ingests:
            if ingest.owner not in self.loop.frozen():
                ingest.publishing.awake._seen = ingest.clock.monotonic()
        while await self.store.sweep(await self.store.now(), 1_000):
            pass

    def _new_disk(self) -> MemoryBroker | None:
        if not self.written:
            return None
        self.disks.append(MemoryBroker(LoopClock(self.loop), lease=LEASE))
        return self.disks[-1]

    def start_ingest(self, disk: MemoryBroker | None) -> None:
        owner, clock = next(self.names), self.new_clock()
        store = remote_store(self.network, owner, self.store)
        publisher: Publisher = self._broker_of(owner)
        with self.acting(owner):
            overlay = self._overlay_of(owner, clock, publishes=True)
            if disk is not None:
                publisher = spool = Spool(publisher, disk, disk, clock, longest_age=LONGEST)
                self._go(spool.forward())
            publishing = Publishing(
                publisher,
                overlay,
                clock,
                pace=Pace(0.02, metered=self.written),
                max_waiting=1_000,
                mint=lambda: next(self.minted),
                read_lately=lambda _: self.random.random() < READ_LATELY,
            )
            reader = Reader(store, overlay, clock, cache_ttl=0.5)
            setter = Setter(reader, store, overlay, clock, Millis(7 * DAY))
            series = SeriesReader(store, overlay, clock, ALL_KEPT)
            largest = Largest(store, overlay, clock, reader)
            self.ingests.append(Ingest(owner, publishing, reader, largest, series, setter, clock, disk))
            self._go(forever(partial(settle_due, store, overlay), 2.0))
            self._go(publishing.awake.watch())

    def start_flusher(self) -> None:
        owner, clock = next(self.names), self.new_clock()
        policy = FlushPolicy(0.3, 100, 10**6, longest=self.random.choice([0.3, 6.0]))
        self.flushers[owner] = clock
        with self.acting(owner):
            tools, witness = self._tools(owner, clock), self._witness_of(owner, clock)
            flusher = Flusher(tools, policy, topic="memory", lease=LEASE, witness=witness)
            self.stops[owner] = stop = Stop()
            self._go(flusher.run(stop, 1.0))

    def start_replayer(self) -> None:
        owner, clock = next(self.names), self.new_clock()
        letters: Any = partial(RemoteDeadLetters, self.network, owner, self.broker)
        self.replayers[owner] = clock
        with self.acting(owner):
            self._go(replaying(self.random, self._tools(owner, clock), letters))

    def _tools(self, owner: str, clock: LoopClock) -> FlushTools:
        return tools_of(
            remote_store(self.network, owner, self.store),
            self._broker_of(owner),
            self._overlay_of(owner, clock),
            clock,
            promise=self.promise,
            one_file=not self.written,
            growth=Growth(1.0, 5),
            rules=ALL_KEPT,
        )

    def readers(self) -> list[Ingest]:
        """Those that users ask."""
        return self.ingests

    def new_clock(self) -> LoopClock:
        return LoopClock(self.loop)

    def _broker_of(self, owner: str) -> Any:
        return RemoteBroker(self.network, owner, self.broker)

    def _witness_of(self, owner: str, clock: LoopClock) -> BacklogWitness | None:
        return None

    def _overlay_of(self, owner: str, clock: LoopClock, *, publishes: bool = False) -> Overlay:
        overlay: Overlay = remote_overlay(self.network, owner, self.overlay)
        return overlay

    @contextlib.contextmanager
    def acting(self, owner: str) -> Iterator[None]:
        token = OWNER.set(owner)
        yield
        OWNER.reset(token)

    def _go(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        owner = OWNER.get()

        def ended(task: "asyncio.Future[Any]") -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, StoodStillError):
                self.loop.call_soon(self.replace, owner, context=NOBODY)
            elif error is not None:
                self.mistakes.append(error)

        self.loop.create_task(coroutine).add_done_callback(ended)

    def kill(self, owner: str) -> None:
        self.network.dead.add(owner)
        self.loop.kill(owner)

    def replace(self, owner: str) -> None:
        """It is killed, or has ended by itself: its supervisor starts another one. An ingest has the same disk."""
        for workers, start in ((self.flushers, self.start_flusher), (self.replayers, self.start_replayer)):
            if workers.pop(owner, None):
                self.kill(owner)
                start()
        for ingest in [ingest for ingest in self.ingests if ingest.owner == owner]:
            self.ingests.remove(ingest)
            self.kill(owner)
            self.start_ingest(ingest.disk)

    def check(self) -> None:
        """Raise what ended a process that nobody killed."""
        for mistake in self.mistakes:
            raise mistake

    async def _heal(self) -> None:
        """Without faults all is applied, and all reads agree with what was answered."""
        self.network.loss = 0.0
        self.network.stopped.clear()
        self.network.cut.clear()
        self.store.refused.clear()
        await self._settled()
        self.history.all_is_applied()
        for ingest in self.ingests:
            while not await self.users.read(ingest, [*COUNTERS], 0.0, at_rest=True):
                await asyncio.sleep(0.5)
            for counter in COUNTERS:
                while not await self.users.read_series(ingest, counter):
                    await asyncio.sleep(0.5)
        await check(self.broker, self.store)
        self.check()

    async def _settled(self) -> None:
        """Until all is applied."""
        why = "messages stay in the broker, in a spool, or dead"
        await self._rest(self._waiting, LONGEST, why)
        await asyncio.sleep(6 * TIMEOUT)  # what was late has come
        await self._rest(self._waiting, LONGEST, why)

    async def _rest(self, waits: Callable[[], bool], longest: float, why: str) -> None:
        until = self.loop.time() + longest
        while waits():
            self.check()
            self._look_after()
            if self.loop.time() > until:
                raise AssertionError(f"{why}; {self._told()}")
            await asyncio.sleep(0.5)

    def _look_after(self) -> None:
        """What people do while the system comes to rest."""
        self.drop_what_is_too_old()

    def _told(self) -> str:
        """How things are, for who reads why a run failed."""
        return f"alive: {[one.owner for one in self.ingests]} {[*self.flushers]}"

    def other_settings(self) -> None:
        """For those that are started from now on."""
        self.promise = promised(Millis(self.random.choice(RETENTIONS)), Millis(self.random.choice(SPOOL_AGES)))

    def drop_what_is_too_old(self) -> None:
        """Somebody does who knows that it has been applied: all was, before days passed."""
        old = [str(number) for number, letter in self.broker.letters(0) if letter.delivery.published < self.day]
        self.broker.forget_buried(old, self.store._time)

    def _waiting(self) -> bool:
        return bool(self.broker.buried()) or any(one.unburied() for one in (self.broker, *self.disks))
