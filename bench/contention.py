"""Rows of contention: writers on one hot counter, with a fixed number of shards against one that sizes itself.

Each writer does what a flusher does in a commit, and they share nothing but the store. Half a minute of a run tells how
it went: how many commits a second, how long each took until it was done, how many tries were ABORTED. At the end the
counter must hold each increment once. `docs/contention.md` says what is seen, and shows the plot that a whole run
draws.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from bench.emulators import FIRESTORE, PROJECT
from bench.figures import Figure, Plan, Row
from bench.plot import Panel, draw
from flusher.flush.commit_loop import ShardBook
from flusher.flush.flusher import GROWTH_INTERVAL
from flusher.shards import CounterGrower, Growth
from shared.datastore.client import DatastoreClient
from shared.datastore.keys import DatastorePlace
from shared.datastore.store import DatastoreStore
from shared.model.buckets import Instant, Monotonic, StoreMillis, WallSeconds
from shared.model.errors import AlreadyAppliedError, ContendedError, TransientError
from shared.model.words import Commit, Receipt, Total
from shared.ports.store import Store
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.retry import Backoff
from tests.interleavings.simulation.loop import VirtualLoop
from tests.world.memory.store import MemoryStore

HOT: Final = "hot"
COLD: Final = tuple(f"cold-{number}" for number in range(20))
COLD_EVERY: Final = 5.0
"""Seconds from one increment of a cold counter to the next, in each writer: they go round."""
LATER: Final = StoreMillis(2**42)
MOST: Final = 100


@dataclass
class Seen:
    """Of the part of a run that counts."""

    took: list[float] = field(default_factory=list)
    """Seconds from the first try of a commit to its end."""
    aborted: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        times = sorted(self.took) or [0.0]
        tries = len(self.took) + self.aborted
        return {
            "rate": len(self.took) / self.seconds,
            "p50": times[len(times) // 2],
            "p95": times[len(times) * 95 // 100],
            "aborted": self.aborted / max(tries, 1),
        }


@dataclass
class Scene:
    """`stores`: one for each writer. `shards`: a fixed number, or None, when they size themselves."""

    stores: Sequence[Store]
    clock: Clock
    shards: int | None
    interval: float
    """Seconds from one commit of a writer to the next, unless the first takes longer."""
    settles: float
    """Seconds before what is seen counts."""
    lasts: float
    pick: Callable[[int], int] = random.randrange
    seen: Seen = field(default_factory=Seen)
    done: int = 0
    last: int = 0
    """The store's time of the last of them."""
    raises: list[tuple[float, int]] = field(default_factory=list)
    """After how many seconds, and to how many shards."""

    async def run(self) -> dict[str, Any]:
        self._begun = self.clock.monotonic()
        self._name = uuid4().hex
        if self.shards is not None:
            await self.stores[0].raise_shards(HOT, self.shards)
        await asyncio.gather(*(self._writer(number, store) for number, store in enumerate(self.stores)))
        self.seen.seconds = self.lasts
        totals = await self._totals()
        if totals[HOT].value != self.done:
            raise RuntimeError(f"{self.done} commits were done, and the counter holds {totals[HOT].value}")
        cold = max(totals[name].shards for name in COLD) if self.shards is None else 1
        return self.seen.document() | {"shards": totals[HOT].shards, "cold": cold, "raises": self.raises}

    async def _totals(self) -> Mapping[str, Total]:
        """Not before the last commit: a store's instants are not before its own, but others' may be a little later."""
        while True:
            async with self.stores[0].snapshot() as snapshot:
                if snapshot.time >= self.last:
                    return (await snapshot.read([HOT, *COLD], ()))[0]

    def _now(self) -> float:
        return self.clock.monotonic() - self._begun

    async def _writer(self, number: int, store: Store) -> None:
        growth = Growth(1.0, MOST, self.pick)
        book = ShardBook(store, self.clock, 1, self.pick)
        growing = CounterGrower(growth, store, book.raised, self.clock)
        grower = asyncio.create_task(self._grow(growing, number)) if self.shards is None else None
        await asyncio.sleep(self.interval * number / len(self.stores))
        commits, cold = 0, 0
        while (begun := self._now()) < self.settles + self.lasts:
            sums = {HOT: 1}
            if self.shards is None and begun > COLD_EVERY * (cold + number / len(self.stores)):
                sums[COLD[(cold + number) % len(COLD)]] = 1  # one of these travels with it
                cold += 1
            await self._commit(f"{self._name}-{number}-{commits}", sums, store, book, growth)
            commits += 1
            await asyncio.sleep(max(0.0, begun + self.interval - self._now()))
        if grower is not None:
            grower.cancel()

    async def _commit(self, key: str, sums: dict[str, int], store: Store, book: ShardBook, growth: Growth) -> None:
        begun = self._now()
        backoff = Backoff()
        while True:
            adds = await book.adds(sums)
            at = self._now()
            growth.tries()
            try:
                time = await store.apply(Commit((Receipt(key, LATER),), adds))
            except ContendedError:
                growth.contended(adds, self.clock.monotonic())
                self.seen.aborted += self.settles <= at
                await backoff.wait()
            except AlreadyAppliedError:
                time, _ = await store.receipts([key])
                break
            except TransientError:
                await backoff.wait()
            else:
                book.done(adds)
                growth.wrote(adds, self._now() - at, self.clock.monotonic())
                break
        self.done += 1
        self.last = max(self.last, time)
        if begun >= self.settles:
            self.seen.took.append(self._now() - begun)

    async def _grow(self, growing: CounterGrower, number: int) -> None:
        await asyncio.sleep(GROWTH_INTERVAL * number / len(self.stores))
        while True:
            await asyncio.sleep(GROWTH_INTERVAL)
            try:
                raised = await growing.grow_once()
            except TransientError:
                continue
            if raised:
                there = (await self.stores[0].shards([HOT]))[HOT]
                if not self.raises or self.raises[-1][1] < there:
                    self.raises.append((round(self._now(), 1), there))


# The rows.


COUNTS: Final = (1, 2, 5, 10, 20, 50)
ENOUGH: Final = 0.9
"""Of the best fixed number's commits a second."""
WRITERS: Final = 20
WRITERS_ON_EMULATOR: Final = 8
DOCS: Final = Path(__file__).parents[1] / "docs"
FILE: Final = Path(__file__).with_name("contention.json")
PLOT: Final = DOCS / "contention.svg"
SIMULATED: Final = "simulated"
TITLES: Final = {
    SIMULATED: "simulated: an entity takes a write a second",
    FIRESTORE: "Firestore emulator in Datastore mode",
}

HOLDS: Final = 1.0
"""Seconds for which a write keeps an entity from the next one: once a second is the guidance."""
TAKES: Final = 0.03
"""Seconds of a commit that waits for nobody."""
PATIENCE: Final = 2.0
"""Seconds after which a commit that waits for an entity is ABORTED."""


class LimitedStore(MemoryStore):
    """A store in memory whose entities take only so many writes, so that writers of one stand in line: what Google says
    of its own, and no emulator shows.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._free: dict[tuple[str, int], float] = {}

    async def apply(self, commit: Commit) -> Instant:
        now = self._clock.monotonic()
        shards = [(add.counter, add.shard) for add in commit.adds]
        turn = max(now, *(self._free.get(shard, now) for shard in shards))
        if turn - now > PATIENCE:
            await asyncio.sleep(PATIENCE)
            raise ContendedError("too much contention on these entities")
        for shard in shards:
            self._free[shard] = turn + HOLDS
        await asyncio.sleep(turn - now + TAKES)
        return await super().apply(commit)


class _Clock:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> WallSeconds:
        return WallSeconds(1_800_000_000 + self._loop.time())

    def monotonic(self) -> Monotonic:
        return Monotonic(1_000 + self._loop.time())


def simulated(shards: int | None, seed: int, *, grown: bool) -> dict[str, Any]:
    """In virtual time: flushers that have something for the counter once a second."""
    loop = VirtualLoop()
    random.seed(seed)
    clock = _Clock(loop)
    store = LimitedStore(clock)
    scene = Scene([store] * WRITERS, clock, shards, 1.0, 240.0 if grown else 20.0, 120.0)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(scene.run())
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def emulated(host: str, shards: int | None, seconds: float, settles: float) -> dict[str, Any]:
    """As fast as they can, each with a client of its own."""

    async def run() -> dict[str, Any]:
        async with _stores(host) as stores:
            scene = Scene(stores, SystemClock(), shards, 0.0, settles, seconds)
            return await scene.run()

    return asyncio.run(run())


@asynccontextmanager
async def _stores(host: str) -> AsyncIterator[Sequence[Store]]:
    place = DatastorePlace(PROJECT, namespace=f"contention-{uuid4().hex}")
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(WRITERS_ON_EMULATOR):
            client = DatastoreClient(place, clock, host)
            stack.push_async_callback(client.close)
            store = DatastoreStore(client)
            stores.append(store)
        yield stores


def _row(plan: Plan, ground: str) -> Row:
    run = _runner(plan, ground)
    fixed: dict[int, list[dict[str, Any]]] = {count: [] for count in COUNTS}
    rounds = range(plan.cloud_rounds if ground != SIMULATED else plan.rounds)
    for seed in rounds:  # in turn, since machines drift
        for count, runs in fixed.items():
            runs.append(run(count, seed, grown=False))
    best = max(COUNTS, key=lambda count: Figure.of([one["rate"] for one in fixed[count]]).median)
    # As old as each other: emulators become slower with what they hold.
    pairs = [(run(None, seed, grown=True), run(best, seed, grown=True)) for seed in rounds]
    itself, same = [[pair[side] for pair in pairs] for side in (0, 1)]
    row = Row(
        f"contention-{ground}", f"one hot counter that sizes itself, {TITLES[ground]}", "commits/s", target=ENOUGH
    )
    row.ours = Figure.of([one["rate"] for one in itself])
    row.reference = Figure.of([one["rate"] for one in same])
    row.ratio = Figure.of([mine["rate"] / other["rate"] for mine, other in pairs])
    cold = max(one["cold"] for one in itself)
    row.met = row.ratio.median >= ENOUGH and cold == 1
    shards = ", ".join(str(one["shards"]) for one in itself)
    row.notes.append(f"the reference is the best fixed number, {best}; it arrived at {shards}; cold ones have {cold}")
    row.more |= {
        "fixed": {str(count): runs for count, runs in fixed.items()},
        "itself": itself,
        "best": best,
        "same": same,
    }
    if plan.seconds >= 2:  # a quick look is no result
        _keep(ground, row.more)
    return row


def _runner(plan: Plan, ground: str) -> Callable[..., dict[str, Any]]:
    """`grown`: what is seen counts once a counter that sizes itself has its number, not already when all write."""
    if ground == SIMULATED:
        return simulated
    quick = plan.seconds < 2
    host, lasts, grows = plan.emulators.host(ground), 3.0 if quick else 10.0, 40.0 if quick else 120.0

    def run(shards: int | None, _: int, *, grown: bool) -> dict[str, Any]:
        return emulated(host, shards, lasts, grows if grown else 2.0)

    return run


def _keep(ground: str, more: dict[str, Any]) -> None:
    """Beside what other grounds gave before; and all of them are drawn."""
    kept = orjson.loads(FILE.read_bytes()) if FILE.exists() else {}
    kept[ground] = more
    FILE.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    PLOT.write_text(draw([panel(TITLES[name], kept[name]) for name in TITLES if name in kept]))


def lines(title: str, more: dict[str, Any]) -> list[str]:
    """Of the table in the page."""
    shards = sorted({one["shards"] for one in more["itself"]})
    arrived = f"{shards[0]}" if len(shards) == 1 else f"{shards[0]} to {shards[-1]}"
    told: list[str] = []
    for what, key, show in (
        ("commits a second", "rate", "{:,.1f}"),
        ("95 % of commits within, s", "p95", "{:.3f}"),
        ("tries aborted", "aborted", "{:.1%}"),
    ):
        cells = [Figure.of([one[key] for one in more["fixed"][str(count)]]).median for count in COUNTS]
        itself = Figure.of([one[key] for one in more["itself"]]).median
        shown = " | ".join(show.format(value) for value in (*cells, itself))
        told.append(f"| {title if not told else ''} | {what} | {shown} | {arrived if not told else ''} |")
    return told


def panel(title: str, more: dict[str, Any]) -> Panel:
    def medians(what: str) -> list[tuple[float, float]]:
        return [(float(count), Figure.of([one[what] for one in runs]).median) for count, runs in more["fixed"].items()]

    itself = {what: Figure.of([one[what] for one in more["itself"]]).median for what in ("rate", "aborted", "shards")}
    rates = sorted(medians("rate"))
    return Panel(title, rates, sorted(medians("aborted")), (itself["shards"], itself["rate"], itself["aborted"]))


ROWS: Final[dict[str, Callable[[Plan], Row]]] = {
    f"contention-{ground}": partial(_row, ground=ground) for ground in (SIMULATED, FIRESTORE)
}
