"""Flushers raise numbers of shards, lower those of cold counters, and choose the shards that they add to."""

from collections.abc import Awaitable, Callable

import pytest

from flusher.flush.commit_loop import KNOWN, FirstShards, ShardBook
from flusher.service import make_flusher
from flusher.shards import CounterCooler, CounterGrower, Growth, ShardRaise
from shared.config.settings import Settings
from shared.counters.setter import Compactor
from shared.model.buckets import DAY, NEVER
from shared.model.errors import ContendedError, ShardFullError
from shared.model.words import SHARD_FULL, Commit, Receipt, ShardAdd
from shared.runtime import metrics
from shared.sqlite.store import SqliteStore
from tests.contracts.compactions import spread
from tests.contracts.guards import guard
from tests.contracts.removals import delete
from tests.contracts.store import commit, total
from tests.world.manual_clock import ManualClock
from tests.world.memory.broker import MemoryBroker
from tests.world.memory.store import MemoryStore
from tests.world.parts import parts_of


class Bench:
    """A flusher's parts on a store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.growth = Growth(1.0, 100)
        self.book = ShardBook(self.store, self.clock, 1)
        self.growing = CounterGrower(self.growth, self.store, self.book.raised, self.clock)
        self.cooling = CounterCooler(self.store, Compactor(self.store, self.clock, DAY), self.clock, 1, 100.0)

    async def write(self, seconds: int, others: int = 0) -> None:
        """Once a second, and others so many times."""
        for _ in range(seconds):
            adds = await self.book.adds({"a": 1})
            self.growth.tries()
            await self.store.apply(commit(*adds))
            self.growth.wrote(adds, 0.01, self.clock.monotonic())
            for number in range(others):
                self.clock.turn(1 / (others + 1))
                shards = (await self.store.shards(["a"]))["a"]
                await self.store.apply(commit(ShardAdd("a", number % shards, 1, shards)))
            self.clock.turn(1 / (others + 1))
            await self.growing.grow_once()


async def test_the_number_rises_and_the_next_sums_go_to_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    before = metrics.RAISES.labels("rate").get()
    await bench.write(120, others=9)
    number = (await bench.store.shards(["a"]))["a"]
    assert 5 <= number <= 14
    assert metrics.SHARDS_OF_LARGEST.get() == number
    assert metrics.RAISES.labels("rate").get() - before == len(caplog.messages)
    assert "counter 'a' has" in caplog.messages[0]
    assert "and had 1, by rate" in caplog.messages[0]
    assert {add.shard for _ in range(200) for add in await bench.book.adds({"a": 1})} == {*range(number)}
    assert await total(bench.store, "a") == 120 * 10


async def test_a_counter_that_has_just_been_removed_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.growth, "due", lambda _: [])
    await bench.write(60, others=9)
    monkeypatch.undo()
    await delete(bench.store)
    assert await bench.store.remove("a")
    assert bench.growth.due(bench.clock.monotonic())
    assert await bench.growing.grow_once() == 0
    assert await bench.store.shards(["a"]) == {}
    assert not (await guard(bench.store)).deleted


async def test_cold_counters_have_one_shard_again() -> None:
    bench = Bench()
    await spread(bench.store, 1, 2, 3)
    await spread(bench.store, 1, 2, 3, counter="warm")
    await spread(bench.store, 1, counter="one")
    bench.clock.turn(60)
    await bench.store.apply(commit(ShardAdd("warm", 1, 1, 3)))
    assert await bench.cooling.cool_once() == 0
    bench.clock.turn(60)
    assert await bench.cooling.cool_once() == 1
    assert await bench.store.shards(["a", "warm", "one"]) == {"a": 1, "warm": 3, "one": 1}
    assert [await total(bench.store, name) for name in ("a", "warm", "one")] == [6, 7, 1]
    bench.clock.turn(60)
    assert await bench.cooling.cool_once() == 1
    assert await bench.cooling.cool_once() == 0
    assert await bench.store.shards(["warm"]) == {"warm": 1}


async def test_those_that_are_not_cold_are_not_asked_about_before_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await spread(bench.store, 1, 2, 3)
    asked = 0
    ages = bench.store.ages

    async def counting(shards: list[tuple[str, int]]) -> object:
        nonlocal asked
        asked += 1
        return await ages(shards)

    monkeypatch.setattr(bench.store, "ages", counting)
    for _ in range(30):
        bench.clock.turn(3)
        await bench.cooling.cool_once()
    assert asked == 1


async def test_what_does_not_fit_or_is_never_said_to_be_old_stays() -> None:
    bench = Bench()
    await spread(bench.store, SHARD_FULL, 5)
    await bench.store.raise_shards("empty", 4)
    bench.clock.turn(1_000)
    assert await bench.cooling.cool_once() == 0
    assert await bench.store.shards(["a", "empty"]) == {"a": 2, "empty": 4}


async def test_no_more_than_so_many_are_remembered_as_not_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flusher.shards.MOST_NOT_COLD", 3)
    bench = Bench()
    for number in range(10):
        await spread(bench.store, 1, 2, counter=f"warm-{number}")
    assert await bench.cooling.cool_once() == 0
    assert len(bench.cooling._later) == 3
    bench.clock.turn(1_000)
    assert await bench.cooling.cool_once() == 10
    assert bench.cooling._later == {}


async def test_one_that_can_not_be_raised_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for name in ("bad", "good"):
        await spread(bench.store, 1, counter=name)
    due = [ShardRaise(name, 1, 4, "rate", 4.0, 0.0) for name in ("bad", "good")]
    monkeypatch.setattr(bench.growth, "due", lambda _: due)
    raise_shards = bench.store.raise_shards

    async def picky(counter: str, num_shards: int, *, make: bool = True) -> int:
        if counter == "bad":
            raise ContendedError("somebody was first")
        return await raise_shards(counter, num_shards, make=make)

    monkeypatch.setattr(bench.store, "raise_shards", picky)
    assert await bench.growing.grow_once() == 1
    assert await bench.store.shards(["bad", "good"]) == {"bad": 1, "good": 4}


class Busy(MemoryStore):
    """Others are first, so often."""

    def __init__(self, clock: ManualClock, times: int) -> None:
        super().__init__(clock)
        self.times = times

    async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
        self.times -= 1
        if self.times >= 0:
            raise ContendedError("somebody was first")
        return await super().compact(counter, max(num_shards, self._configs[counter] - 2), receipt)


async def test_a_compaction_takes_as_many_commits_and_tries_as_it_needs() -> None:
    clock = ManualClock()
    store = Busy(clock, 3)
    await spread(store, 1, 2, 3, 4, 5, 6)
    assert await Compactor(store, clock, DAY).compact("a", 1) == 1
    assert await total(store, "a") == 21


async def test_flushers_grow_counters_only_where_it_helps_and_cool_them_only_if_they_are_asked_to() -> None:
    clock = ManualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)

    for one_file, settings, grows, cools in (
        (False, Settings(), True, False),
        (False, Settings(compact_after=1.0), True, True),
        (True, Settings(), False, False),
        (True, Settings(compact_after=1.0), False, False),
    ):
        flusher = make_flusher(parts_of(broker, store, clock, one_file=one_file), settings)
        assert (flusher._growing is not None, flusher._cooling is not None) == (grows, cools)


async def test_the_receipt_of_a_compaction_stands_for_nothing_and_names_its_counter() -> None:
    kept: list[Receipt] = []

    class Watched(MemoryStore):
        async def compact(self, counter: str, num_shards: int, receipt: Receipt) -> int:
            kept.append(receipt)
            return await super().compact(counter, num_shards, receipt)

    clock = ManualClock()
    store = Watched(clock)
    await store.apply(Commit((), (ShardAdd("a", 0, 1, 3),)))
    await Compactor(store, clock, DAY).compact("a", 1)
    (one,) = kept
    assert one.expires > clock.now() * 1000 + DAY
    assert b'"s":{"a":0}' in one.note


COUNTER = "hot"
ROUNDS = 30
OTHERS = 12
"""Shards that another process makes and fills at once."""


def commits(store: SqliteStore, book: ShardBook) -> Callable[[], Awaitable[int]]:
    """A flusher's way to commit a sum that fills a shard. Each call returns how many tries it took."""
    made = 0

    async def commit() -> int:
        nonlocal made
        tries = 0
        while True:
            made += 1
            tries += 1
            assert tries < 100, "it tries for ever"
            adds = await book.adds({COUNTER: SHARD_FULL // 2 + 1})
            try:
                await store.apply(Commit((Receipt(f"e:{id(book)}-{made}", NEVER),), adds))
            except ShardFullError as error:
                book.full(error.shards)
            else:
                book.done(adds)
                return tries

    return commit


async def test_two_flushers_fill_shards_in_turn(store: SqliteStore) -> None:
    both = [commits(store, ShardBook(store, ManualClock(), 1)) for _ in range(2)]
    tries = [await both[turn % 2]() for turn in range(ROUNDS)]
    assert max(tries) <= 5


async def test_many_shards_that_others_filled_are_passed_with_a_look(store: SqliteStore) -> None:
    mine, other = [commits(store, ShardBook(store, ManualClock(), 1)) for _ in range(2)]
    await mine()
    for _ in range(3 * OTHERS):
        await other()
    assert await mine() <= 3 * OTHERS


NAMES = ['a"b', "c\\d", "é/\u2028", "plain"]


async def test_a_full_shard_is_followed_by_the_next(store: SqliteStore) -> None:
    book = FirstShards(1)
    for number in (SHARD_FULL, 1):
        await store.apply(Commit((), await book.adds({"a": number, "b": 1})))
    with pytest.raises(ShardFullError) as refused:
        await store.apply(Commit((), await book.adds({"a": 1, "b": 1})))
    assert [*refused.value.shards] == [("a", 0)]
    book.full(refused.value.shards)
    await store.apply(Commit((), await book.adds({"a": 1, "b": 1})))
    assert [await total(store, name) for name in "ab"] == [SHARD_FULL + 2, 3]
    assert await store.shards(["a", "b"]) == {"a": 2, "b": 1}


async def test_a_new_counter_gets_as_many_shards_as_the_settings_say_and_a_compacted_one_keeps_its_own(
    store: SqliteStore,
) -> None:
    book = FirstShards(5)
    await store.apply(Commit((), await book.adds(dict.fromkeys(NAMES, 1))))
    assert await store.shards(NAMES) == dict.fromkeys(NAMES, 5)
    await store.compact("plain", 2, Receipt("k1", expires=0))  # type: ignore[arg-type] # a time
    await store.apply(Commit((), await book.adds(dict.fromkeys(NAMES, 1))))
    assert await store.shards(NAMES) == dict.fromkeys(NAMES, 5) | {"plain": 2}
    assert [await total(store, name) for name in NAMES] == [2] * len(NAMES)


async def test_adds_to_first_shards_read_like_any_others() -> None:
    adds = await FirstShards(5).adds({"a": 1, "b": -2})
    assert [*adds] == [ShardAdd("a", 0, 1, 5, KNOWN), ShardAdd("b", 0, -2, 5, KNOWN)] == [adds[0], *adds[1:]]
    assert len(adds) == 2
    assert not await FirstShards(5).adds({})
