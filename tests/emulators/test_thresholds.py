"""On Google Cloud, all thresholds that commits reach are told, and no others, whoever is killed."""

import asyncio
import random
from collections.abc import Awaitable
from itertools import count
from typing import Any

import pytest

from countersink_server.cli.traffic_plan import Traffic, TrafficPlan
from flusher.announcer import Announcer
from shared.config.lists import feed_rules, threshold_rules
from shared.datastore import feed, thresholds
from shared.datastore.client import DatastoreClient
from shared.datastore.feed import DatastoreFeedBook
from shared.datastore.store import DatastoreStore
from shared.datastore.thresholds import generation
from shared.model.buckets import Millis, Monotonic, StoreMillis
from shared.model.errors import TransientError
from shared.model.feed import NOTHING, Told, told
from shared.model.words import SHARD_FULL, Commit, Guard, Receipt, ShardAdd
from shared.runtime import metrics
from shared.runtime.clock import SystemClock
from tests.emulators.datastore_fixtures import Datastore, insist
from tests.unit.feed.test_month import Consumer, KilledError

LATER = StoreMillis(4 * 10**12)
NAMES = ["page:a", "page:a-0", "page:b", "quota:x"]
TOLD = told(feed_rules("quota:=0s"), threshold_rules("page:=every 10,quota:=at 5 40"), "there")
LEVELS = {name: [*range(10, 3_000, 10)] if name.startswith("page:") else [5, 40] for name in NAMES}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BELIEVED", -1.0)
    monkeypatch.setattr(thresholds, "FOLLOWED", -(10**9))
    monkeypatch.setattr(thresholds, "ROWS", 3)
    monkeypatch.setattr(thresholds, "DELETES_AT_ONCE", 2)


class MortalClient(DatastoreClient):
    """Of a process that may be killed before and after each of its commits."""

    chance: random.Random | None = None

    async def commit(self, *arguments: Any, **more: Any) -> Any:
        fate = self.chance.random() if self.chance else 1
        if fate < 0.1:
            raise KilledError
        response = await super().commit(*arguments, **more)
        if fate < 0.2:
            raise KilledError
        return response


class Teller(DatastoreFeedBook):
    """Tells as if it had the lease, even if another process has it."""

    async def open(self, told: Told) -> bool:
        self._asked = self._renewed = -float("inf")
        monkey = feed._is_held
        feed._is_held = lambda *_: False
        try:
            return await super().open(told)
        finally:
            feed._is_held = monkey


class World:
    def __init__(self, datastore: Datastore, store: DatastoreStore, seed: int = 0) -> None:
        self.datastore = datastore
        self.store = store
        self.chance = random.Random(seed)
        self.consumer = Consumer(self.chance, set())
        self.values = dict.fromkeys(NAMES, 0)
        self.generations = dict.fromkeys(NAMES, 0)
        self.needed: set[str] = set()
        self.number = count()

    async def teller(self, *, mortal: bool = False) -> Announcer:
        """Of a process of its own."""
        client = MortalClient(self.datastore.place, self.datastore.clock, self.datastore.host)
        client.time = self.datastore.clients[0].time
        self.datastore.clients.append(client)
        book = Teller(client, self.store, 60.0)
        assert await book.open(TOLD)
        client.chance = self.chance if mortal else None
        return Announcer(book, self.consumer, "the consumer", TOLD)

    def receipt(self) -> tuple[Receipt, ...]:
        return (Receipt(f"r{next(self.number)}", LATER),)

    def judge(self, name: str, delta: int) -> None:
        before, after = self.values[name], self.values[name] + delta
        self.values[name] = after
        reached = [level for level in LEVELS[name] if before < level <= after]
        self.needed |= {f"{self.generations[name]}/{level}/{name}" for level in reached}

    async def count(self) -> None:
        sums = {name: self.chance.choice([1, 3, 7, 25, -1, -12]) for name in self.chance.sample(NAMES, 2)}
        shards = {name: self.chance.randrange(3) for name in sums}
        adds = [ShardAdd(name, shards[name], delta, shards[name] + 1) for name, delta in sums.items()]
        await insist(self.store, Commit(self.receipt(), (*adds, ShardAdd("other", 0, 1, 1))))
        for name, delta in sums.items():
            self.judge(name, delta)

    async def set(self) -> None:
        name, target = self.chance.choice(NAMES), self.chance.choice([0, 4, 17, 60])
        delta, receipt = target - self.values[name], self.receipt()
        async with self.store.snapshot() as snapshot:
            totals, _ = await snapshot.read([name], ())
        assert totals[name].value == self.values[name]
        adds = (ShardAdd(name, 0, delta, 1),) if delta else ()
        await self.store.apply(Commit(receipt, adds, guard=(name, Guard(totals[name].guard.version))))
        self.generations[name] = generation(receipt[0].key)
        self.judge(name, delta)

    async def rests(self, announcer: Announcer) -> None:
        self.consumer.sound = True
        await announcer._book.open(TOLD)
        while await announcer.round():
            pass


@pytest.mark.parametrize("seed", range(3))
async def test_they_are_told_and_no_others_though_processes_are_killed(datastore: Datastore, seed: int) -> None:
    world = World(datastore, await datastore.store(), seed)
    tellers = [await world.teller(mortal=True) for _ in range(2)]
    for _ in range(100):
        what = world.chance.choices([world.count, world.set, None], [6, 1, 4])[0]
        if what is not None:
            await what()
            continue
        place = world.chance.randrange(2)
        try:
            await asyncio.gather(*[one.round() for one in tellers[: place + 1]])
        except KilledError:
            tellers[place] = await world.teller(mortal=True)
        except TransientError:
            continue
    await world.rests(await world.teller())
    assert world.consumer.reached == world.needed
    assert len(world.needed) > 20


async def test_commits_at_once_to_several_shards(datastore: Datastore) -> None:
    world = World(datastore, await datastore.store())
    announcer = await world.teller()
    world.consumer.sound = True

    async def count(shard: int) -> None:
        for _ in range(25):
            await insist(world.store, Commit(world.receipt(), (ShardAdd("page:a", shard, 1, shard + 1),)))

    counting = asyncio.gather(*map(count, range(4)))
    while not counting.done():
        await announcer.round()
    await counting
    await world.rests(announcer)
    assert world.consumer.reached == {f"0/{level}/page:a" for level in range(10, 101, 10)}


async def test_commits_between_two_pages_of_rows(datastore: Datastore) -> None:
    world = World(datastore, await datastore.store())
    announcer = await world.teller()
    judge, border = announcer._book._judge, "page:b"  # type: ignore[attr-defined] # of three rows, the last

    async def add(name: str) -> None:
        await insist(world.store, Commit(world.receipt(), (ShardAdd(name, 0, 10, 1),)))
        world.judge(name, 10)

    for _ in range(5):
        for name in NAMES:
            await add(name)
        assert await judge.judge(TOLD, {"page:": 1, "quota:": 1}, LATER), "there is a page more"
        for _ in range(6):
            await add(border)
        await world.rests(announcer)
    assert world.consumer.reached == world.needed


async def test_totals_beyond_64_bits_and_the_highest_of_many(datastore: Datastore) -> None:
    world = World(datastore, await datastore.store())
    announcer = await world.teller()
    world.consumer.sound = True
    for shard in range(3):
        await world.store.apply(Commit(world.receipt(), (ShardAdd("quota:x", shard, SHARD_FULL, shard + 1),)))
    for shard in range(3):
        await world.store.apply(Commit(world.receipt(), (ShardAdd("quota:x", shard, -SHARD_FULL, shard + 1),)))
    await world.store.apply(Commit(world.receipt(), (ShardAdd("page:a", 0, 10**9, 1),)))
    await world.rests(announcer)
    highest = range(10**9 - 99_990, 10**9 + 1, 10)
    assert len(highest) == 10_000
    assert world.consumer.reached == {"0/5/quota:x", "0/40/quota:x", *(f"0/{level}/page:a" for level in highest)}


async def test_new_rules_hold_when_no_commit_follows_others(
    datastore: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(datastore, await datastore.store())
    announcer = await world.teller()
    monkeypatch.setattr(thresholds, "FOLLOWED", 10**9)
    await world.store.apply(Commit(world.receipt(), (ShardAdd("page:a", 0, 10, 1),)))
    await world.rests(announcer)
    assert not world.consumer.reached
    monkeypatch.setattr(thresholds, "FOLLOWED", -(10**9))
    await world.store.apply(Commit(world.receipt(), (ShardAdd("page:a", 0, 10, 1),)))
    await world.rests(announcer)
    assert world.consumer.reached == {"0/20/page:a"}


class StoppedClock(SystemClock):
    """Nothing that was read becomes stale, however long the machine stands still: no read more, and none less."""

    def monotonic(self) -> Monotonic:
        return Monotonic(0.0)


async def test_telling_costs_what_the_plan_says(datastore: Datastore) -> None:
    datastore.clock = StoppedClock()
    world = World(datastore, await datastore.store())
    book = (await world.teller())._book

    def done() -> list[float]:
        return [metrics.DATASTORE_OPERATIONS.labels(kind).get() for kind in ("read", "write", "delete")]

    async def cost(work: Awaitable[object]) -> list[float]:
        before = done()
        await work
        return [after - one for one, after in zip(before, done(), strict=True)]

    async def tell() -> None:
        owed = await book.owed(9)
        await book.settle([(one, Millis(0)) for one in owed.changes], [(one, one.levels.last) for one in owed.reaches])

    await world.store.apply(Commit(world.receipt(), (ShardAdd("other", 0, 1, 1), ShardAdd("quota:x", 0, 1, 1))))
    await tell()
    await tell()  # now all of it rests
    idle = await cost(tell())
    commits = [Commit(world.receipt(), (ShardAdd(name, 0, 1, 1),)) for name in ("other", "quota:x")]
    others, counted = [await cost(world.store.apply(one)) for one in commits]
    assert [one - other for one, other in zip(counted, others, strict=True)] == [0, 2, 0]
    reads, writes, deletes = [one + other for one, other in zip(await cost(tell()), await cost(tell()), strict=True)]
    plan = TrafficPlan(Traffic(1.0), ingests=1, flushers=1, told=0.0, judged=True)
    feed, thresholds = plan._feed(), plan._thresholds()
    times = plan.shard_writes
    assert reads - 2 * idle[0] == pytest.approx((feed.reads + thresholds.reads - 3) / times)
    assert writes + 2 == pytest.approx((feed.writes + thresholds.writes) / times)
    assert deletes == pytest.approx((feed.deletes + thresholds.deletes) / times)


async def test_what_the_rules_do_not_have_any_more_is_not_told(datastore: Datastore) -> None:
    world = World(datastore, await datastore.store())
    book = (await world.teller())._book
    for name in ("page:a", "quota:x"):
        await world.store.apply(Commit(world.receipt(), (ShardAdd(name, 0, 10, 1),)))
    assert {one.counter for one in (await book.owed(9)).reaches} == {"page:a", "quota:x"}
    assert book.waiting().events == 3
    assert not await book.open(NOTHING)
    other = told((), threshold_rules("page:=every 7,quota:=at 5"), "there")
    assert await book.open(other)
    assert [(one.counter, one.levels.first) for one in (await book.owed(9)).reaches] == [("quota:x", 5)]
