"""A fleet on Redis: ingests and flushers with the real overlay, on servers that fail, and the store that names one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from flusher.flush.flusher import BacklogWitness
from shared.fleet import FleetView, Membership
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.model.fleet import Fleet
from shared.model.words import Delivery, Envelope, Message, Reading
from shared.ports.broker import Check, at_any_time
from shared.ports.overlay import Overlay
from shared.ports.store import FleetLook, Left
from shared.redis.overlay import RedisOverlay
from shared.wire.codec import decode
from tests.interleavings.simulation.conservation import CountingApart, check
from tests.interleavings.simulation.disorder import Disorder
from tests.interleavings.simulation.history import History
from tests.interleavings.simulation.loop import NOBODY, OWNER
from tests.interleavings.simulation.network import TIMEOUT
from tests.interleavings.simulation.poison import PickyStore
from tests.interleavings.simulation.servers import SimulatedLinks, Site
from tests.interleavings.simulation.system import LEASE, Ingest, LoopClock, System
from tests.interleavings.simulation.users import COUNTERS, Users
from tests.interleavings.steps.network import Remote, RemoteBroker, named, remote_store
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.fleet import MemoryFleetBook

HOSTS: Final = ("a", "b")
"""Addresses of a Redis."""
EPISODE: Final = 5.0
"""Virtual seconds of users and faults; there are some, with hours between them or without."""
GAPS: Final = (0.0, 0.0, 0.0, 60.0, 150.0, 400.0, 1_500.0)
"""Seconds between two episodes: nothing, or more than a lease, a hold, a member's silence, and all evidence."""
GRAIN: Final = 29.0
"""Seconds, in gaps: less than the longest gap between two pulls of a flusher that watches."""
INGESTS: Final = 5
"""Grains in which an ingest looks once."""
LEAPS_OFTEN: Final = 0.2
"""Chance of days that nobody sees, after an episode."""
COUNTED: Final = 0.1
"""Chance of an increment at each look of users, in gaps."""
OFF: Final = 30 * 86_400.0
"""Seconds by which dates are wrong at most."""
WHOLE_AGAIN: Final = 20_000.0
"""Virtual seconds after the last fault in which every reading has to be exact again."""
FORGOTTEN: Final = 40.0
"""Days after which no entry is in doubt any more, whatever the settings were: see `shared.model.receipts.ages`."""
PEACE: Final[dict[str, float]] = {
    "shared.redis.member.FIRST": 1.0,
    "shared.redis.member.ELSEWHERE": 4.0,
    "shared.redis.member.STRUCK_AFTER": 2.0,
    "flusher.flush.flusher.LOOK": 0.1,
}
"""Constants that only keep the peace, or save work; short ones give more to see. Those that are for safety stay."""
SILENCE: Final = 600.0
SHORTER: Final[dict[str, float]] = {
    "shared.model.fleet.SILENCE": SILENCE,
    "shared.model.fleet.WATCHES": 260.0,
    "shared.model.fleet.OVERDUE": 250.0,
    "flusher.flush.flusher.HOLDS": 100.0,
    "flusher.flush.flusher.REPORTS": 50.0,
}
"""What members and flushers promise each other about time, all of it a sixth of what it is, so that an hour of evidence
takes ten minutes.
"""
SOON: Final[dict[str, Any]] = {"every": 0.3, "look_every": 5.0, "patience": 0.4, "silent": 1.0}
"""Of the same kind."""


class RemoteFleetBook(Remote):
    """The fleet's entity. A change is a look and a commit that depends on what it saw."""

    calls = named(look="fleet look", left_by="fleet list")

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        while True:
            before = (await self.look()).fleet.version
            if not self._network.calm:  # then much may happen before the commit
                await asyncio.sleep(self._network.random.choice([0.05, 0.05, 0.6]))

            async def commit(before: int = before) -> FleetLook | None:
                same = (await self._server.look()).fleet.version == before
                return await self._server.change(step, left) if same else None

            after: FleetLook | None = await self._call("fleet commit", commit)
            if after is not None:
                return after


class PatientBroker(RemoteBroker):
    """A pull that finds nothing takes its time. For a while it may take nothing, and say that it never will."""

    refuses: "Callable[[], TransientError | None]"

    async def publish(self, messages: Sequence[Message], check: Check = at_any_time) -> None:
        if (error := self.refuses()) is not None:
            raise error
        await super().publish(messages, check)

    async def pull(self, limit: int, max_bytes: int, wait: float) -> list[Delivery]:
        found = [*await super().pull(limit, max_bytes, wait)]
        if not found:
            await asyncio.sleep(wait)
        return found


class DiskRows:
    """What was in a spool when a process opened it."""

    def __init__(self, disk: MemoryBroker) -> None:
        self._disk = disk
        self._there = [*disk._messages]
        self.unreadable: bool | None = None

    async def read(self) -> AsyncIterator[tuple[Envelope, StoreMillis]]:
        while self._there:
            number = self._there[0]
            if number in self._disk._messages:
                held = self._disk._messages[number]
                for envelope in decode(Delivery("", held.message, str(number), held.published), "memory"):
                    yield envelope, StoreMillis(held.published)
                await asyncio.sleep(0)
            self._there.pop(0)
        self.unreadable = False

    async def all_forwarded(self) -> bool:
        return not any(number in self._disk._messages for number in self._there)


class Disk:
    """A spool file, as a process has it."""

    def __init__(self, system: "FleetSystem", disk: MemoryBroker) -> None:
        self._system, self._disk = system, disk
        self.id = f"spool-{system.disks.index(disk)}"

    def hold(self, member: str) -> None:
        self._system.holders.setdefault(self.id, set()).add(member)

    def alive(self) -> set[str]:
        return self._system.holders[self.id] & self._system.overlays.keys()

    def rows(self) -> DiskRows:
        return DiskRows(self._disk)


@dataclass
class FleetSystem(System):
    """One run."""

    looks: dict[str, FleetView] = field(default_factory=dict)
    overlays: dict[str, RedisOverlay] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    refusal: TransientError | None = None
    """What the broker answers to each publish."""
    holders: dict[str, set[str]] = field(default_factory=dict)
    """Who has had each disk, as its lock files say."""
    url: str = f"redis://{HOSTS[0]}"
    """What the settings say now; processes keep what they said when these were started."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.patience = 2.0
        self._quiet = self.random.random() < 0.5
        self.history = History(exactly=True, always=False)
        self.network.once = frozenset({"fleet commit", *(f"redis {host}{n}" for host in HOSTS for n in (1, 2))})

    def run(self) -> None:
        with self._scaled():
            super().run()

    @contextlib.contextmanager
    def _scaled(self) -> Iterator[None]:
        numbers = count(1)

        def links(url: str, timeout: float) -> SimulatedLinks:
            return SimulatedLinks(self.network, OWNER.get(), self.site, url)

        def uuid() -> UUID:
            return UUID(int=next(numbers) << 96)

        with contextlib.ExitStack() as stack:
            most_listed = {"shared.fleet.MOST_LEFT": self.random.choice([2, 10_000])}
            for name, value in (PEACE | SHORTER | most_listed).items():
                stack.enter_context(patch(name, value))
            for module in ("shared.redis.own_entries", "shared.redis.member", "flusher.flush.flusher"):
                stack.enter_context(patch(f"{module}.uuid4", uuid))
            stack.enter_context(patch("shared.redis.overlay.Links", links))
            yield

    async def _main(self) -> None:
        self._begin()
        for _ in range(self.random.randint(1, 3)):
            await self._episode(self.loop.time() + EPISODE)
            if gap := self.random.choice(GAPS):
                await self.disorder.before_a_gap()
                await self._pass(gap)
            if self.random.random() < LEAPS_OFTEN:
                await self._leap()
        await self._heal()

    def _begin(self) -> None:
        clock = LoopClock(self.loop)
        self.broker = CountingApart(clock, lease=LEASE)
        self.store = PickyStore(clock)
        self.book = MemoryFleetBook(self.store)
        self.site = Site(self.loop.time, HOSTS)
        self.users = Users(self)
        self.disorder = Disorder(self)
        for _ in range(self.random.randint(1, 3)):
            self.start_ingest(self.free_disk())
        for _ in range(self.random.randint(1, 2)):
            self.start_flusher()
        self.start_replayer()

    async def _episode(self, until: float) -> None:
        """In which much happens."""
        seconds = until - self.loop.time()
        doing: list[Any] = [self.users.counting(seconds) for _ in range(2)]
        doing += [self.users.reading(until) for _ in range(2)]
        doing += [self.users.changing(until) for _ in range(self.random.randint(0, 1))]
        doing += [self.disorder.run(until)]
        await self._together(doing)

    async def _leap(self) -> None:
        """All machines sleep for days, if all that was published has been applied: whatever else is wrong stays so."""
        until = self.loop.time() + 60.0
        while self._waiting():
            if self.loop.time() > until:
                return
            await asyncio.sleep(0.5)
        await asyncio.sleep(6 * TIMEOUT)
        if not self._waiting():
            await self._pass_days()
            self.check()

    async def _pass(self, seconds: float) -> None:
        """A time in which nothing new goes wrong; what is wrong stays so."""
        until = self.loop.time() + seconds
        self._calm(calm=True)
        while self.loop.time() < until:
            await asyncio.sleep(self.random.choice([GRAIN, 10 * GRAIN]))
            if self.random.random() < COUNTED:
                await self.users.count_once()
            await self.users.read(
                self.random.choice(self.readers()), [*COUNTERS], self.random.choice([None, 0.0, 60.0])
            )
            self.check()
        self._calm(calm=False)

    def _calm(self, *, calm: bool) -> None:
        self.network.calm = calm
        if calm:
            self.loop.grain = GRAIN
            self.loop.coarse = dict.fromkeys(self.overlays.keys() - self.flushers.keys(), INGESTS)
        else:
            self.loop.hurry()

    def readers(self) -> list[Ingest]:
        """Nobody asks some of them, so they look at the fleet for themselves only."""
        return self.ingests[:1] if self._quiet else self.ingests

    def new_clock(self) -> LoopClock:
        """Wrong from the start, and not quite as fast as others."""
        off = self.random.choice([0.0, self.random.uniform(-OFF, OFF)])
        rate = self.random.uniform(0.9995, 1.0005)
        return LoopClock(self.loop, off=off, start=self.random.uniform(0, 10**6), rate=rate)

    def _broker_of(self, owner: str) -> PatientBroker:
        broker = PatientBroker(self.network, owner, self.broker)
        broker.refuses = lambda: self.refusal
        return broker

    def _witness_of(self, owner: str, clock: LoopClock) -> BacklogWitness:
        return BacklogWitness(self.looks[owner], clock, "memory")

    def _overlay_of(self, owner: str, clock: LoopClock, *, publishes: bool = False) -> Overlay:
        age = self.random.choice([0.0, 1.0])
        book: Any = RemoteFleetBook(self.network, owner, self.book)
        self.looks[owner] = looks = FleetView(book, clock, age)
        membership = None
        if publishes:
            disk = Disk(self, self._disk) if self._disk is not None else None
            membership = Membership(looks, clock, member=owner, topic="memory", spool=disk, silence=SILENCE)
        store = remote_store(self.network, owner, self.store)
        overlay = RedisOverlay(self.url, looks, clock, membership=membership, store=store, **SOON)
        self.overlays[owner], self.urls[owner] = overlay, self.url
        self._go(overlay.open())
        return overlay

    def free_disk(self) -> MemoryBroker | None:
        """For a new ingest: one that another has left, or a new one."""
        held = [ingest.disk for ingest in self.ingests]
        return next((disk for disk in self.disks if disk not in held and disk.unburied()), None) or self._new_disk()

    def start_ingest(self, disk: MemoryBroker | None) -> None:
        self._disk = disk
        super().start_ingest(disk)

    async def end_ingest(self, ingest: Ingest) -> None:
        """A clean end of one that users don't see any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3.0):
                await ingest.publishing.drain()
        await self.overlays[ingest.owner].close()
        self.loop.call_soon(self.kill, ingest.owner, context=NOBODY)

    def kill(self, owner: str) -> None:
        super().kill(owner)
        for known in (self.looks, self.overlays, self.urls):
            known.pop(owner, None)

    async def _heal(self) -> None:
        """Without faults all is applied, the fleet becomes whole, and all reads agree with what was answered."""
        self.disorder.heal()
        self.network.loss = 0.0
        self.store.refused.clear()
        for ingest in [*self.ingests]:
            if self.urls.get(ingest.owner, self.url) != self.url:  # the last of a rolling restart
                self.start_ingest(self.free_disk())
                self.ingests.remove(ingest)
                await asyncio.wait([self.loop.start(ingest.owner, self.end_ingest(ingest))], timeout=10.0)
                self.check()
        for owner in [owner for owner in self.flushers if self.urls[owner] != self.url]:
            self.replace(owner)
        await self._settled()
        await self._become_whole()
        if await self._in_doubt():
            await self._pass_days(FORGOTTEN)
            await self._become_whole()
        self.history.all_is_applied()
        for ingest in self.ingests:
            for _ in range(60):
                if await self.users.read(ingest, [*COUNTERS], 0.0, at_rest=True):
                    break
                await asyncio.sleep(0.5)
            else:
                raise AssertionError(f"{ingest.owner} does not read exactly, though the fleet is whole: {self._told()}")
        await check(self.broker, self.store)
        self.check()

    async def _become_whole(self) -> None:
        self._calm(calm=True)
        await self._rest(self._apart, WHOLE_AGAIN, "the fleet does not become whole")
        self._calm(calm=False)

    async def _in_doubt(self) -> bool:
        """Whether an entry is so old that its receipt may be gone. It was applied before a leap, and not settled. Until
        it is forgotten, readings are not exact: for hours, or for days after the settings have changed.
        """
        for ingest in self.ingests:
            views = await self.overlays[ingest.owner].view([*COUNTERS])
            if any(entry.late for view in views.values() for entry in view.entries):
                return True
        return False

    def _left(self) -> Iterator[MemoryBroker]:
        """Disks that nobody has and that keep something, or whose owner is missed: people start an ingest on each."""
        held = {id(ingest.disk) for ingest in self.ingests}
        missed = {one.spool for one in self.book._fleet.apart().values() if one.spool}
        for number, disk in enumerate(self.disks):
            if id(disk) not in held and (disk.unburied() or f"spool-{number}" in missed):
                yield disk

    def _look_after(self) -> None:
        super()._look_after()
        for disk in [*self._left()]:
            self.start_ingest(disk)

    def _apart(self) -> bool:
        return not self.book._fleet.whole()

    def _told(self) -> str:
        return f"{self.book._fleet}, {super()._told()}"


@dataclass
class Scene(FleetSystem):
    """A fleet in which nothing fails but what a script lets fail."""

    seed: int = 4
    written: bool = True
    script: Callable[[Any], Awaitable[None]] | None = None
    """Gets the scene."""

    async def _main(self) -> None:
        self.network.loss = 0.0
        self._begin()
        await self.play()

    async def play(self) -> None:
        assert self.script is not None
        await self.script(self)

    async def read(self, ingest: Ingest, max_age: float = 0.0) -> Reading:
        return (await self.loop.start(ingest.owner, ingest.reader.read(["a"], max_age)))[0]
