"""A month of feed in virtual time, on a file: processes are killed and receivers fail, and in the end a consumer that
keeps the greatest sequence has every counter, and every threshold was told.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from flusher.announcer import Announcer
from shared.config.lists import feed_rules, threshold_rules
from shared.model.buckets import StoreMillis
from shared.model.feed import CHANGED, NOTHING, Event, told
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from shared.sqlite import feed
from shared.sqlite.database import Database
from shared.sqlite.feed import SqliteFeedBook
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

NAMES = [f"{prefix}{name}" for prefix in ("page:", "quota:", "other:") for name in "abcd"]
RULES = threshold_rules("page:=every 10,quota:=at 5 40")
FEEDS = [feed_rules(text) for text in ("page:=10s,=1h", "page:=0s,quota:=2h", "=1m")]
DAY = 86_400
STEPS = 250


class KilledError(Exception):
    """The process that tells was killed."""


class Consumer:
    """Keeps the greatest sequence of each counter. It fails as receivers do."""

    def __init__(self, chance: random.Random, reached: set[str]) -> None:
        self.chance = chance
        self.reached = reached
        self.table: dict[str, tuple[int, int]] = {}
        self.sound = False

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        fate = "take" if self.sound else self.chance.choice(["take", "take", "some", "none", "before", "after"])
        if fate == "before":
            raise KilledError
        taken = [fate in {"take", "after"} or (fate == "some" and self.chance.random() < 0.5) for _ in events]
        shuffled = [event for event, took in zip(events, taken, strict=True) if took]
        self.chance.shuffle(shuffled)
        for event in shuffled:
            self.take(event)
        if fate == "after":
            raise KilledError
        return ["" if took else "no" for took in taken]

    def take(self, event: Event) -> None:
        if event.type != CHANGED:
            self.reached.add(event.id)
            return
        sequence, value = event.data["sequence"], event.data["value"]
        before = self.table.get(event.counter, (0, 0))
        assert sequence != before[0] or value == before[1], "a sequence has one value"
        self.table[event.counter] = max(before, (sequence, value))

    async def close(self) -> None:
        """It has nothing open."""


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.database = Database(path)
        self.store = SqliteStore(self.database, self.clock)
        self.values = dict.fromkeys(NAMES, 0)
        self.generations = dict.fromkeys(NAMES, 0)
        self.peaks: dict[tuple[str, int], int] = {}
        self.needed: set[str] = set()
        self.reached: set[str] = set()
        self.receipts = iter(range(10**6))
        self.told = NOTHING
        self.announcer: Announcer | None = None

    async def begin(self) -> None:
        """The process that tells starts, with other settings than before."""
        self.consumer = Consumer(self.chance, self.reached)
        self.told = told(self.chance.choice(FEEDS), RULES, str(next(self.receipts)))
        await self.start()

    async def start(self) -> None:
        """It starts. The one before was killed, so its lock is free."""
        await self.kill()
        self.book = SqliteFeedBook(self.database, self.clock)
        self.announcer = Announcer(self.book, self.consumer, "the consumer", self.told)
        assert await self.book.open(self.told)

    async def kill(self) -> None:
        if self.announcer is not None:
            await self.book.close()
            self.announcer = None

    async def stop_telling(self) -> None:
        """A process starts without the settings."""
        await self.kill()
        self.told = NOTHING
        assert not await SqliteFeedBook(self.database, self.clock).open(NOTHING)

    async def count(self) -> None:
        names = self.chance.sample(NAMES, self.chance.randint(1, 4))
        sums = {name: self.chance.choice([1, 3, 7, 25, -1, -12]) for name in names}
        await self.store.apply(Commit(self.receipt(), tuple(ShardAdd(name, 0, sums[name], 1) for name in names)))
        for name in names:
            self.judge(name, self.values[name], self.values[name] + sums[name])

    async def set(self) -> None:
        name, target = self.chance.choice(NAMES), self.chance.choice([0, 4, 17, 60])
        delta, guard = target - self.values[name], Guard(self.generations[name])
        commit = Commit(self.receipt(), (ShardAdd(name, 0, delta, 1),), guard=(name, guard))
        self.generations[name] = await self.store.apply(commit)
        self.judge(name, self.values[name], target)
        if self.told.thresholds:
            self.peaks[name, self.generations[name]] = target

    def judge(self, name: str, before: int, after: int) -> None:
        self.values[name] = after
        if not self.told.thresholds:
            return
        key = (name, self.generations[name])
        peak = max(self.peaks.get(key, before), before)
        thresholds = range(10, 2_000, 10) if name.startswith("page:") else (5, 40) if name.startswith("quota:") else ()
        self.needed |= {f"{key[1]}/{level}/{name}" for level in thresholds if peak < level <= after}
        self.peaks[key] = max(peak, after)

    def receipt(self) -> tuple[Receipt, ...]:
        return (Receipt(f"r{next(self.receipts)}", StoreMillis(10**15)),)

    async def tell(self) -> None:
        if self.announcer is None:
            return
        try:
            await self.announcer.round()
        except KilledError:
            await self.start()

    async def step(self) -> None:
        self.clock.turn(self.chance.expovariate(STEPS / (30 * DAY)))
        start = self.start if self.announcer else self.tell
        kinds = [self.count, self.set, self.tell, start, self.begin, self.stop_telling]
        await self.chance.choices(kinds, [40, 8, 45, 3, 2, 1])[0]()


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_month_with_kills_the_consumer_has_every_counter(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PAGE", 5)
    world = World(tmp_path / "countersink.db", seed)
    await world.begin()
    for _ in range(STEPS):
        await world.step()
    if world.announcer is None:
        await world.begin()
    world.consumer.sound = True
    assert world.announcer is not None
    for _ in range(5):
        while await world.announcer.round():
            pass
        world.clock.turn(2 * 3_600)
    assert world.book.waiting().events == 0
    prefixes = tuple(rule.prefix for rule in world.told.feed)
    async with world.store.snapshot() as snapshot:
        totals, _ = await snapshot.read(NAMES, ())
    there = {name: total.value for name, total in totals.items() if total.shards and name.startswith(prefixes)}
    assert {name: value for name, (_, value) in world.consumer.table.items()} == there
    assert world.reached == world.needed
    assert world.needed
    await world.database.close()
