"""What audits say of counters in Datastore. While processes set, delete, remove, compact and count them at once,
nothing is lost, and audits agree.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from countersink_server.cli.audit import AGREES, DIFFERS, UNKNOWN, Verdict, judge, look
from flusher.flush.commit_loop import ShardBook
from shared.counters.reader import Reader
from shared.counters.setter import DELETE, RESET, SET, Change, ChangeRequest, Compactor, Setter
from shared.datastore.client import LAG_EMULATED, DatastoreClient, Found
from shared.datastore.keys import COUNT, KEY, name_of, query_of
from shared.datastore.store import DatastoreStore
from shared.model.buckets import DAY, HOUR, BucketAdd, ByTime, Rule, TimeBucket
from shared.model.errors import AlreadyAppliedError, ContendedError, ShrunkError, TransientError
from shared.model.receipts import Tally, key_of_envelope, notes_of_change, notes_of_commit
from shared.model.words import Commit, Envelope, Guard, Receipt, ShardAdd
from tests.contracts.audit_data import noted
from tests.contracts.compactions import receipt, shrink, spread
from tests.contracts.removals import delete
from tests.contracts.store import LATER, commit, total
from tests.emulators.datastore_fixtures import Datastore, audited, insist
from tests.world.memory.exact_overlay import ExactOverlay
from tests.world.series import ALL_KEPT

HOURS_AND_DAYS = (Rule("", tuple([one for one in ALL_KEPT[0].kept if one[0] != "minute"])),)


async def judged(store: DatastoreStore, horizon: float = 1.0) -> dict[str, Verdict]:
    with contextlib.closing(await look(store, (), horizon)) as ledger:
        return {line.counter: judge(line, horizon) for line in ledger.lines()}


async def verdicts(store: DatastoreStore, horizon: float = 1.0) -> dict[str, str]:
    return {name: verdict.mark for name, verdict in (await judged(store, horizon)).items()}


async def test_what_agrees_what_differs_and_what_nobody_can_judge(datastore: Datastore) -> None:
    store, place = await datastore.store(), datastore.place
    for name in ("well", "theirs", "lost", "a-1", "ü-2-"):
        await store.apply(noted(name, 5, f"{name}-1"))
        await store.apply(noted(name, -2, f"{name}-2", shard=1))
    assert await verdicts(store) == dict.fromkeys(["a-1", "lost", "theirs", "well", "ü-2-"], AGREES)
    await datastore.put(place.shard("theirs", 0), {COUNT: {"integer_value": 6}})
    await datastore.put(place.key(place.kinds.shard, "shard-of-something-else"), {COUNT: {"integer_value": 1}})
    await datastore.delete(place.receipt("lost-1"))
    await store.apply(commit(ShardAdd("well", 0, 0, 1)))
    found = await verdicts(store)
    assert {name: found[name] for name in ("well", "a-1", "theirs")} == {
        "well": AGREES,
        "a-1": AGREES,
        "theirs": UNKNOWN,
    }
    # Without the receipt nobody knows whose the last write of the shard was: only where others come after is it told.
    assert found["lost"] == UNKNOWN
    await store.apply(noted("lost", 1, "lost-3"))
    assert (await verdicts(store))["lost"] == DIFFERS
    assert (await verdicts(store, 10.0**10))["lost"] == UNKNOWN, "its receipts may have expired"


async def test_what_was_removed_and_counted_again_is_not_judged_but_may_agree(datastore: Datastore) -> None:
    """Its config is young, but receipts of the time before may have expired."""
    store, place = await datastore.store(), datastore.place
    for name in ("back", "gone"):
        await store.apply(noted(name, 5, f"{name}-1"))
        (note,) = notes_of_change("c", name, [-5], 5, 0)
        receipt = Receipt(f"{name}-2", LATER, note=note)
        await store.apply(Commit((receipt,), (ShardAdd(name, 0, -5, 1),), guard=(name, Guard(0, deleted=True))))
        assert await store.remove(name)
    await store.apply(noted("back", 7, "back-3"))
    assert await verdicts(store) == {"back": AGREES, "gone": AGREES}
    await datastore.delete(*(place.receipt(f"{name}-1") for name in ("back", "gone")))
    assert await verdicts(store) == {"back": UNKNOWN, "gone": UNKNOWN}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("p0", {"integer_value": 8}, "sum to 7, and the day has 8"),
        ("p0", {"string_value": "7"}, "is no whole number, but a string"),
        ("p0", {"double_value": 1e300}, "is no whole number, but a double"),
        ("note", {"integer_value": 1}, "is no day"),
        ("p366", {"integer_value": 1}, "is no day"),
    ],
)
async def test_a_damaged_count_by_time_differs(
    datastore: Datastore, name: str, value: dict[str, Any], said: str
) -> None:
    store, client, place = await datastore.store(), datastore.client(), datastore.place
    for counter in ("a", "b"):
        adds = [
            BucketAdd(TimeBucket(counter, by, begin), 0, delta, LATER)
            for by, begin, delta in (("hour", HOUR, 3), ("hour", 5 * HOUR, 4), ("day", 0, 7))
        ]
        await store.apply(replace(noted(counter, 7, f"{counter}-1"), by_time=ByTime(tuple(adds), HOURS_AND_DAYS)))
    assert await verdicts(store) == {"a": AGREES, "b": AGREES}
    buckets = [
        one async for page in client.pages(query_of(place.kinds.buckets, 9, order=KEY), read_time=None) for one in page
    ]
    (day,) = [one.entity for one in buckets if name_of(one.entity.key)[1].startswith("a\x1fday")]
    request = client.commit_request()
    harmed = request.mutations.add().update
    harmed.CopyFrom(day)
    harmed.properties[name].Clear()
    for kind, its in value.items():
        setattr(harmed.properties[name], kind, its)
    await client.commit(request)
    await asyncio.sleep(2 * LAG_EMULATED)
    found = await judged(store)
    assert found["a"].mark == DIFFERS
    assert said in found["a"].said
    assert found["b"].mark == AGREES


SHARDS = 3


class Crowd:
    """Processes on one namespace. Their overlay stands for one that all of them see."""

    def __init__(self, datastore: Datastore) -> None:
        self.datastore = datastore
        self.overlay = ExactOverlay(datastore.clock)
        self.random = random.Random(1)
        self.changes: list[Change] = []
        self.counted = 0

    async def setter(self) -> Setter:
        store = await self.datastore.store()
        reader = Reader(store, self.overlay, self.datastore.clock, 1.0)
        return Setter(reader, store, self.overlay, self.datastore.clock, DAY)

    async def count(self, store: DatastoreStore, name: str, deltas: list[int]) -> None:
        """Accepted, and some time later applied and settled, as an ingest and a flusher do together."""
        for number, delta in enumerate(deltas):
            envelope = Envelope(f"{name}-{number}", {"a": delta})
            async with self.overlay.entered([envelope]):
                await asyncio.sleep(0)
            self.counted += delta
            await asyncio.sleep(self.random.random() * 0.02)
            key = await self._apply(store, f"{name}-{number}", delta)
            await self.overlay.settle([key], (await store.receipts([key])).time)

    async def _apply(self, store: DatastoreStore, name: str, delta: int) -> str:
        (note,) = notes_of_commit([""], name, Tally(applied=1), {"a": delta})
        receipt = Receipt(key_of_envelope(name), LATER, note=note)
        shard = self.random.randrange(SHARDS)
        await insist(store, Commit((receipt,), (ShardAdd("a", shard, delta, SHARDS),)))
        return receipt.key

    async def change(self, setter: Setter, wishes: list[ChangeRequest]) -> None:
        for wish in wishes:
            while True:
                try:
                    self.changes.append(await setter.set("a", wish))
                except TransientError:
                    continue
                break

    async def check(self) -> None:
        """What the sets found and what came since add up to all that was counted, and the receipts agree."""
        store = await self.datastore.store()
        async with store.snapshot() as snapshot:
            left = (await snapshot.read(["a"], ()))[0]["a"].value
        assert sum(change.before - change.after for change in self.changes) + left == self.counted
        line = await audited(store)
        assert (line.held, line.said, line.unread) == (left, left, 0)
        assert judge(line, 0).mark in {AGREES, UNKNOWN}


def wishes(name: str, number: int) -> list[ChangeRequest]:
    kinds = [SET, RESET, DELETE, SET, DELETE]
    return [ChangeRequest(kind, 1_000 * (kind == SET), f"{name}-{at}") for at, kind in enumerate(kinds[:number])]


async def test_sets_increments_and_removals_at_once_are_all_accounted_for(datastore: Datastore) -> None:
    crowd = Crowd(datastore)
    setters = [await crowd.setter() for _ in range(2)]
    stores = [await datastore.store() for _ in range(3)]
    done = asyncio.Event()

    async def remove() -> None:
        while not done.is_set():
            await stores[2].remove("a")
            await asyncio.sleep(0)

    removing = asyncio.create_task(remove())
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(crowd.count(stores[number % 2], f"n{number}", [3**number, -1] * 4) for number in range(4)),
            *(crowd.change(setters[number % 2], wishes(f"w{number}", 5)) for number in range(3)),
        )
        done.set()
        await removing
    await crowd.check()


MOST_SHARDS = 6


async def count(store: DatastoreStore, book: ShardBook, key: str, delta: int) -> None:
    """As a flusher does, until its receipt is there."""
    (note,) = notes_of_commit([""], key, Tally(applied=1), {"a": delta})
    while True:
        adds = await book.adds({"a": delta})
        try:
            await store.apply(Commit((Receipt(key, LATER, note=note),), adds))
        except ShrunkError as error:
            book.shrunk(error.counters)
        except AlreadyAppliedError:
            return
        except TransientError:
            continue
        else:
            book.done(adds)
            return


async def test_increments_and_compactions_at_once_are_all_accounted_for(datastore: Datastore) -> None:
    stores = [await datastore.store() for _ in range(5)]
    chance = random.Random(1)
    done = asyncio.Event()
    compacted = 0

    async def adds(store: DatastoreStore, name: str) -> None:
        """Slower and slower until a compaction gets in between, as long as that takes on a busy machine."""
        book = ShardBook(store, datastore.clock, 1, chance.randrange)
        for number in itertools.count():
            if number >= 30 and compacted:
                return
            await count(store, book, f"{name}-{number}", chance.choice([1, -2, 1_000, 2**41]))
            await asyncio.sleep(0.01 * chance.random() * max(1, number - 30))

    async def compacts(store: DatastoreStore) -> None:
        nonlocal compacted
        while not done.is_set():
            with contextlib.suppress(ContendedError):
                compacted += await shrink(store, chance.randint(1, 2)) > 0
            await asyncio.sleep(0.05 * chance.random())

    async def raises(store: DatastoreStore) -> None:
        while not done.is_set():
            await store.raise_shards("a", MOST_SHARDS)
            await asyncio.sleep(0.1 * chance.random())

    chance.seed(1)
    others = [asyncio.create_task(one) for one in (compacts(stores[3]), compacts(stores[4]), raises(stores[4]))]
    await asyncio.gather(*(adds(store, f"w{number}") for number, store in enumerate(stores[:3])))
    done.set()
    await asyncio.gather(*others)
    assert compacted
    assert await Compactor(stores[0], datastore.clock, DAY).compact("a", 1) == 1
    with contextlib.closing(await look(stores[0], ["a"], 0)) as ledger:
        (line,) = ledger.lines()
        assert (line.held, line.unread) == (line.said, 0)
        assert line.held == await total(stores[0], "a")
        assert judge(line, 0).mark in {AGREES, UNKNOWN}
        assert ledger.receipts > 90


async def stopped_before(
    client: DatastoreClient, shard: str, step: Callable[[], Awaitable[Any]], between: Callable[[], Awaitable[Any]]
) -> Any:
    """What becomes of a step that is kept from looking at this shard until something else has happened."""
    arrived, go = asyncio.Event(), asyncio.Event()
    look_up = client.look_up

    async def waiting(keys: Iterable[Any], **options: Any) -> Found:
        ids = [*keys]
        if any(name_of(key)[1] == shard for key in ids) and not arrived.is_set():
            arrived.set()
            await go.wait()
        return await look_up(ids, **options)

    client.look_up = waiting  # type: ignore[method-assign] # that is the point
    task = asyncio.ensure_future(step())
    await arrived.wait()
    await between()
    go.set()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def test_who_comes_second_leaves_no_shard_that_somebody_remembers(datastore: Datastore) -> None:
    """It would be added to, and read by nobody."""
    client = datastore.client()
    writer, first, second = await datastore.store(), await datastore.store(), await datastore.store(client)
    await spread(writer, 1, 2, 3, 4)
    outcome = await stopped_before(client, "shard-a-3", lambda: shrink(second, 1), lambda: shrink(first, 1))
    assert isinstance(outcome, ContendedError)
    with pytest.raises(ShrunkError):
        await writer.apply(commit(ShardAdd("a", 3, 5, 4, 4)))
    assert await total(writer, "a") == 10


async def test_nor_does_who_removes_a_counter_second(datastore: Datastore) -> None:
    client = datastore.client()
    writer, first, second = await datastore.store(), await datastore.store(), await datastore.store(client)
    await spread(writer, 1, 2, 3, 4)
    await delete(writer)
    outcome = await stopped_before(client, "shard-a-3", lambda: second.remove("a"), lambda: first.remove("a"))
    assert outcome is False
    await writer.apply(commit(ShardAdd("a", 3, 5, 4, 4)))
    assert await total(writer, "a") == 5


async def test_more_shards_than_one_commit_takes_go_in_several(datastore: Datastore) -> None:
    store = await datastore.store()
    await store.apply(commit(ShardAdd("a", 0, 1, 450), ShardAdd("a", 449, 5, 450)))
    assert await store.compact("a", 1, receipt()) == 250
    assert await total(store, "a") == 6
    assert await Compactor(store, datastore.clock, DAY).compact("a", 1) == 1
    assert await total(store, "a") == 6


async def test_the_last_write_of_a_shard_has_an_age_whoever_wrote(datastore: Datastore) -> None:
    store, other = await datastore.store(), await datastore.store()
    await spread(store, 1, 2)
    while (await store.ages([("a", 0)]))["a", 0] < 0.3:
        await asyncio.sleep(0.02)
    await other.apply(commit(ShardAdd("a", 1, 1, 2)))
    ages = await store.ages([("a", 0), ("a", 1), ("a", 2)])
    assert ages.keys() == {("a", 0), ("a", 1)}
    assert -0.1 < ages["a", 1] <= ages["a", 0] - 0.3 < 30
