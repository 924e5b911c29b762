"""The largest counters of a SQLite file, whatever is pending, dead or deleted: compared with a dictionary."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shared.counters.reader as under_test
from shared.counters.reader import Largest, Reader
from shared.model.buckets import BEGINNING, NEVER, StoreMillis
from shared.model.dead_letters import with_body
from shared.model.words import DEAD, SHARD_FULL, Commit, Envelope, Guard, Receipt, ShardAdd
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription, topic_of
from shared.sqlite.database import Database
from shared.sqlite.snapshot import SqliteSnapshot
from shared.sqlite.store import SqliteStore
from shared.wire.codec import decode, encode
from tests.http.both_ways import poll
from tests.world.memory.exact_overlay import ExactOverlay

NAMES = ["a", "a:1", "a:2", "a:é", 'a:"', "b", "b:1", "c"]
LATER = StoreMillis(1 << 60)


class World:
    """A file, and what its counters must be."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(folder / "a.db")
        clock = SystemClock()
        self.store = SqliteStore(self.database, clock)
        self.broker = SqlitePublisher(self.database, clock, 1 << 30)
        self.subscription = SqliteSubscription(self.database, clock, 60.0)
        overlay = SqliteOverlay(self.database, topic_of(self.database))
        self.largest = Largest(self.store, overlay, clock, Reader(self.store, overlay, clock, cache_ttl=0.0))
        self.values: dict[str, int] = {}
        self.number = 0

    async def publish(self, sums: Mapping[str, int]) -> None:
        self.number += 1
        await self.broker.publish([encode(Envelope(f"e{self.number}", sums))])
        for name, delta in sums.items():
            self.values[name] = self.values.get(name, 0) + delta

    async def store_directly(self, sums: Mapping[str, int], shard: int = 0) -> None:
        adds = tuple(ShardAdd(name, shard, delta, shard + 1) for name, delta in sums.items())
        await self.store.apply(Commit((), adds, changes=tuple(sums)))
        for name, delta in sums.items():
            self.values[name] = self.values.get(name, 0) + delta

    async def flush(self, *, dead: bool = False, acks: bool = True) -> None:
        """Apply the oldest message, or give it up. Without `acks` the message stays, as if the flusher had died."""
        for delivery in await self.subscription.pull(1, 1 << 20, 0):
            (envelope,) = decode(delivery, "t")
            receipt = Receipt(envelope.key, LATER)
            adds = tuple(ShardAdd(name, 0, delta, 1) for name, delta in envelope.sums.items())
            if dead:
                receipt = with_body(receipt._replace(state=DEAD, expires=NEVER), envelope, "odd", delivery.published)
                adds = ()
            time = await self.store.apply(Commit((receipt,), adds))
            if acks:
                await self.subscription.ack([delivery.token], time)

    async def delete(self, name: str) -> None:
        """As `Setter` does, where nothing is pending."""
        async with self.store.snapshot() as snapshot:
            totals, _ = await snapshot.read([name], ())
        total = totals[name]
        guard = (name, Guard(total.guard.version, deleted=True))
        await self.store.apply(Commit((), (ShardAdd(name, 0, -total.value, 1, 1),), guard=guard, changes=(name,)))
        self.values.pop(name, None)

    def expected(self, prefix: str, limit: int) -> list[tuple[str, int]]:
        its = [(name, value) for name, value in self.values.items() if name.startswith(prefix)]
        return sorted(its, key=lambda one: (-one[1], one[0]))[:limit]

    async def check(self, prefix: str = "", limit: int = 1_000, *, exact: bool = True) -> None:
        found, is_exact = await self.largest.read([prefix], limit)
        assert [(one.name, one.value) for one in found] == self.expected(prefix, limit)
        assert is_exact is exact
        assert all(one.exact for one in found)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    one = World(tmp_path)
    yield one
    await one.database.close()


async def test_equal_totals_are_in_the_order_of_names_and_a_zero_is_a_value(world: World) -> None:
    await world.store_directly({"b": 0, "a": 0, "d": -1, "c": 3})
    await world.store.raise_shards("aa", 3)
    world.values["aa"] = 0
    for limit in range(1, 6):
        await world.check(limit=limit)


async def test_a_deleted_counter_has_no_place_until_it_counts_again(world: World) -> None:
    await world.store_directly({"a": 5, "b": 0, "c": -1})
    await world.delete("a")
    for limit in (1, 2, 3):
        await world.check(limit=limit)
    await world.publish({"a": 1})
    await world.check(limit=1)
    await world.flush()
    await world.check(limit=1)


async def test_totals_beyond_int64_and_of_several_shards_are_compared_whole(world: World) -> None:
    for shard in range(3):
        await world.store_directly({"a": SHARD_FULL, "b": SHARD_FULL - shard, "c": -SHARD_FULL, "d": -1}, shard)
    await world.store_directly({"e": 2**32, "f": 2**32 - 1, "g": -(2**32), "h": -(2**32) - 1})
    for limit in range(1, 9):
        await world.check(limit=limit)


async def test_the_caller_sees_only_its_prefixes(world: World) -> None:
    await world.store_directly({"a:1": 1, "b:1": 9, "c:1": 2})
    await world.publish({"a:2": 3, "b:2": 7})
    found, _ = await world.largest.read(["a:", "c:"], 2)
    assert [one.name for one in found] == ["a:2", "c:1"]


@pytest.mark.parametrize("looks_up", [True, False])
async def test_what_it_has_shown_is_in_every_later_reading(
    world: World, monkeypatch: pytest.MonkeyPatch, looks_up: bool
) -> None:
    """Where an overlay lacks what programs publish on a topic, a reading made with what was kept would lack it, too."""
    clock = SystemClock()
    overlay = ExactOverlay(clock)
    reader = Reader(world.store, overlay, clock, cache_ttl=60.0)
    largest = Largest(world.store, overlay, clock, reader)
    read, landing = SqliteSnapshot.read, asyncio.Event()

    async def slowly(self: SqliteSnapshot, counters: Sequence[str], keys: Collection[str]) -> Any:
        found = await read(self, counters, keys)
        if counters == ["a"]:
            await landing.wait()
        return found

    await world.store_directly({"a": 1, "b": 1})
    if looks_up:
        monkeypatch.setattr(SqliteSnapshot, "read", slowly)
    earlier = asyncio.create_task(reader.read(["a"]))
    if looks_up:
        await poll(lambda: bool(reader._flights))
    else:
        await earlier
    await world.store_directly({"a": 5})
    asyncio.get_running_loop().call_later(0.1, landing.set)
    assert [one.value for one in (await largest.read([""], 10))[0]] == [6, 1]
    (reading,) = await reader.read(["a"])
    assert reading.value == 6
    await earlier


async def test_what_is_pending_of_very_many_counters_is_read_in_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "MOST_IN_TURN", 3)
    await world.store_directly({name: number for number, name in enumerate(NAMES)})
    await world.publish(dict.fromkeys(NAMES[:5], 10))
    for limit in range(1, len(NAMES) + 1):
        await world.check(limit=limit, exact=False)


SUMS = st.dictionaries(st.sampled_from(NAMES), st.integers(-20, 20), min_size=1, max_size=4)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["publish", "add"]), SUMS),
    st.tuples(st.just("flush"), st.sampled_from(["applied", "dead", "killed"])),
    st.tuples(st.just("read"), st.tuples(st.sampled_from(["", "a", "a:", "b", "d"]), st.integers(1, 5))),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_it_is_what_a_dictionary_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    async def walk() -> None:
        world = World(tmp_path_factory.mktemp("file"))
        try:
            for kind, what in steps:
                if kind == "publish":
                    await world.publish({name: delta for name, delta in what.items() if delta} or {"c": 1})  # type: ignore[attr-defined] # a dictionary
                elif kind == "add":
                    await world.store_directly(what, len(what) % 3)  # type: ignore[arg-type] # a dictionary
                elif kind == "flush":
                    await world.flush(dead=what == "dead", acks=what != "killed")
                else:
                    await world.check(*what)  # type: ignore[misc] # a prefix and a limit
            await world.check()
        finally:
            await world.database.close()

    asyncio.run(walk())


async def test_it_is_exact_while_others_count(world: World) -> None:
    """An amount moves between counters: at each instant, all that are there add up to the same."""
    await world.store_directly({f"n{number}": 100 for number in range(30)})
    pick = random.Random(7)
    done = asyncio.Event()

    async def move() -> None:
        for _ in range(60):
            one, other = pick.sample(range(30), 2)
            await world.publish({f"n{one}": -7, f"n{other}": 7})
            if pick.random() < 0.6:
                await world.flush()
        done.set()

    async def look() -> None:
        while not done.is_set():
            found, exact = await world.largest.read([""], 30)
            values = [one.value for one in found]
            assert exact
            assert sum(values) == 3_000
            assert values == sorted(values, reverse=True)

    await asyncio.gather(move(), look())
    assert world.store.database.commits > BEGINNING
    await world.check()
