"""On Google Cloud, a consumer has every counter, whoever is killed, and from the first rules on."""

import asyncio
import json
import random
from collections.abc import Sequence
from math import inf

import pytest

from flusher.announcer import Announcer
from shared.config.lists import feed_rules
from shared.datastore import feed
from shared.datastore.feed import DatastoreFeedBook
from shared.datastore.store import DatastoreStore
from shared.model.buckets import Instant, Millis, StoreMillis, WallSeconds
from shared.model.errors import TransientError
from shared.model.feed import NOTHING, Change, Event, Told, changed, told
from shared.model.words import Commit, Guard, Receipt, ShardAdd
from shared.pubsub.publisher import PubsubReceiver
from tests.emulators.datastore_fixtures import Datastore, insist
from tests.emulators.pubsub_fixtures import Pubsub
from tests.unit.feed.test_month import Consumer, KilledError

LATER = StoreMillis(4 * 10**12)
NAMES = [f"page:{name}" for name in "abc"]
TOLD = told(feed_rules("page:=0s"), (), "there")


def commit(number: int, name: str, delta: int, shard: int = 0) -> Commit:
    return Commit((Receipt(f"{number}-{name}", LATER),), (ShardAdd(name, shard, delta, shard + 1),))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BELIEVED", 0.0)


class EagerBook(DatastoreFeedBook):
    async def open(self, told: Told) -> bool:
        self._asked = self._renewed = -inf
        return await super().open(told)


class World:
    def __init__(self, datastore: Datastore, store: DatastoreStore) -> None:
        self.datastore = datastore
        self.store = store
        self.consumer = Consumer(random.Random(7), set())

    def book(self) -> DatastoreFeedBook:
        """Of a process of its own, whose lease is renewed at each call."""
        return EagerBook(self.datastore.clients[0], self.store, 60.0)


@pytest.fixture
async def world(datastore: Datastore) -> World:
    store = await datastore.store()
    return World(datastore, store)


async def test_a_consumer_has_every_counter_though_processes_are_killed(world: World) -> None:
    book = world.book()
    assert await book.open(TOLD)
    sums = dict.fromkeys((*NAMES, "other"), 0)
    chance = random.Random(3)

    async def count(name: str) -> None:
        for number in range(15):
            delta = chance.choice([1, 5, -2])
            await insist(world.store, commit(number, name, delta, chance.randrange(3)))
            sums[name] += delta

    counting = asyncio.gather(*map(count, NAMES), count("other"))

    while not counting.done():
        announcer = Announcer(book, world.consumer, "the consumer", TOLD)
        try:
            for _ in range(3):
                await announcer.round()
        except KilledError:  # the next one is a process of its own, and gets the lease when it has ended
            await book.close()
            book = world.book()
            assert await book.open(TOLD)
    await counting
    async with world.store.snapshot() as snapshot:
        totals, _ = await snapshot.read(NAMES, ())
    assert {name: total.value for name, total in totals.items()} == {name: sums[name] for name in NAMES}
    world.consumer.sound = True
    last = world.book()
    await book.close()
    assert await last.open(TOLD)
    async with asyncio.timeout(60):
        while {name: value for name, (_, value) in world.consumer.table.items()} != {n: sums[n] for n in NAMES}:
            await Announcer(last, world.consumer, "the consumer", TOLD).round()
    assert not await Announcer(last, world.consumer, "the consumer", TOLD).round()
    assert last.waiting() == (0, 0.0)


async def test_what_is_committed_after_the_look_stays_owed_and_sets_are_told(world: World) -> None:
    book = world.book()
    await book.open(TOLD)
    await world.store.apply(commit(1, "page:a", 4))
    owed = await book.owed(9)
    await world.store.apply(commit(2, "page:a", 1))
    await book.settle([(one, Millis(0)) for one in owed.changes], [])
    again = await book.owed(9)
    assert [one.value for one in (*owed.changes, *again.changes)] == [4, 5]
    await book.settle([(one, Millis(60_000)) for one in again.changes], [])
    set_to_0 = Commit((Receipt("set", LATER),), (ShardAdd("page:a", 0, -5, 1),), guard=("page:a", Guard()))
    await world.store.apply(set_to_0)
    assert not (await book.owed(9)).changes, "its interval has not passed"
    book._next.clear()
    assert [one.value for one in (await book.owed(9)).changes] == [0]


async def test_an_interval_outlives_the_process_that_told(world: World) -> None:
    hourly, at_once = told(feed_rules("page:=1h"), (), "there"), TOLD.text()
    book = world.book()
    await book.open(hourly)
    await world.store.apply(commit(1, "page:a", 4, shard=1))
    await book.settle([(one, Millis(3_600_000)) for one in (await book.owed(9)).changes], [])
    await world.store.apply(commit(2, "page:a", 1))
    await world.store.apply(commit(2, "page:b", 1))
    await book.close()
    other = world.book()
    assert await other.open(hourly)
    assert [one.counter for one in (await other.owed(9)).changes] == ["page:b"]
    other._text = at_once  # as if the hour had passed
    other._next.clear()
    due = (await other.owed(9)).changes
    assert {one.counter: one.value for one in due} == {"page:a": 5, "page:b": 1}
    await other.settle([(one, Millis(0)) for one in due], [])
    assert not (await other.owed(9)).changes
    assert not await other._owed.next(), "what was told goes"


async def test_new_rules_owe_all_counters_once_no_commit_follows_the_earlier_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "SWEPT_AT_ONCE", 2)
    for name in (*NAMES, "other"):
        await world.store.apply(commit(1, name, 1))
    book = world.book()
    assert not await book.open(NOTHING)
    assert await book.open(TOLD)
    assert not await book.sweep(), "a commit may still follow the rules of before"
    monkeypatch.setattr(feed, "FOLLOWED", -1_000)
    while await book.sweep():
        pass
    monkeypatch.setattr(feed, "FOLLOWED", 720_000)
    assert {one.counter for one in (await book.owed(9)).changes} == {*NAMES}
    assert not await world.book().open(TOLD), "another one has the lease"
    await book.close()
    other = world.book()
    assert await other.open(TOLD)
    assert not await other.sweep()
    await other.close()
    assert not await world.book().open(NOTHING)
    await world.store.apply(commit(2, "page:new", 1))
    await other.open(NOTHING)
    assert "page:new" not in {one.counter for one in (await other.owed(9)).changes}


async def test_a_commit_follows_no_rules_that_were_seen_long_ago(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.store.apply(commit(1, "page:a", 1))
    world.store._rules._until = StoreMillis(world.store._rules._until - 200_000)  # as if it stood still after its look
    monkeypatch.setattr(feed, "BELIEVED", 60.0)
    with pytest.raises(TransientError, match="stood still"):
        await world.store.apply(commit(2, "page:a", 1))
    monkeypatch.setattr(feed, "BELIEVED", 0.0)
    await world.store.apply(commit(2, "page:a", 1))
    async with world.store.snapshot() as snapshot:
        totals, _ = await snapshot.read(["page:a"], ())
    assert totals["page:a"].value == 2


async def test_a_topic_gets_cloud_events_that_bigquery_can_keep(pubsub: Pubsub) -> None:
    receiver = PubsubReceiver(pubsub.client(), pubsub.place.topic, "countersink/t")
    event: Event = changed(Change("page:é", 5, Instant(255), WallSeconds(1_800_000_000.0)))
    assert await receiver.tell([event]) == [""]
    received: Sequence[object] = await pubsub.client().pull(pubsub.place.subscription, 1, 30)
    (message,) = [one.message for one in received]  # type: ignore[attr-defined]
    assert json.loads(message.data) == {
        "counter": "page:é",
        "value": 5,
        "as_of": "2027-01-15T08:00:00.000Z",
        "sequence": 255,
        "_CHANGE_TYPE": "UPSERT",
        "_CHANGE_SEQUENCE_NUMBER": "00000000000000ff",
    }
    assert dict(message.attributes) == {
        "ce-specversion": "1.0",
        "ce-id": "255/page:é",
        "ce-source": "countersink/t",
        "ce-type": "countersink.counter.changed",
        "ce-subject": "page:é",
        "ce-time": "2027-01-15T08:00:00.000Z",
        "content-type": "application/json",
    }
    away = PubsubReceiver(pubsub.client(), pubsub.place.topic + "-no", "countersink/t")
    assert "NOT_FOUND" in (await away.tell([event]))[0]
