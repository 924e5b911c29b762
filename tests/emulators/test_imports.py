"""Counters of all published variants, written as their code would, imported while it goes on: totals are equal."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from countersink_server.move.importer import Importer, ImportOptions, ImportOutcome
from shared.config.settings import Settings
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY
from shared.model.errors import SettingsError
from shared.model.moving import VARIANTS, Source
from shared.ports.store import Store
from shared.runtime.clock import SystemClock
from shared.wiring.moving import source_of
from tests.contracts.store import total
from tests.emulators.datastore_fixtures import Datastore
from tests.emulators.published import APPLICATIONS, CONFIG, SHARD, Application, Database
from tests.emulators.test_datastore_accounts import verdicts

NAMES = ("a", "a1", "a-1", "b/ü \N{SNOWMAN}", "\uffee", "\U0001f600")
"""The last two are in another order in UTF-16; and shards of the first three are hard to tell apart."""


@asynccontextmanager
async def source_in(old: Database, host: str, variant: str, *, named: bool = False) -> AsyncIterator[Source]:
    """`named`: of kinds, each is said, since the Firestore emulator lists none."""
    url = f"datastore://{old.client.project}?namespace={old.client.namespace}"
    more: dict[str, dict[str, Any]] = {"php": {"kind": "Votes"}, "simple": {"names": NAMES[:1]}}
    if named:
        more["java"] = {"names": [*NAMES, "another"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATASTORE_EMULATOR_HOST", host)
        async with source_of(Settings(), variant, url, **more.get(variant, {})) as source:
            yield source


async def imported(source: Source, store: Store, prefix: str = "", **options: bool) -> list[ImportOutcome | str]:
    told: list[ImportOutcome | str] = []
    clock = SystemClock()
    await Importer(source, store, ProcessOverlay(clock), clock, ImportOptions(DAY, **options)).run(prefix, told.append)
    return told


def changed(told: Sequence[ImportOutcome | str]) -> dict[str, int]:
    assert all(isinstance(one, ImportOutcome) and not one.flaw for one in told), told
    return {one.name: one.added for one in told if isinstance(one, ImportOutcome) and one.added}


class Counting:
    """An application, and what it has counted so far."""

    def __init__(self, application: Application, names: Sequence[str]) -> None:
        self.application = application
        self.names = names
        self.counted: Counter[str] = Counter()

    def count(self, times: int) -> None:
        for number in range(times):
            name = self.names[number % len(self.names)]
            self.application.increment(name)
            self.counted[name] += 1

    def totals(self) -> dict[str, int]:
        totals = {name: self.application.get_count(name) for name in self.names}
        assert sum(totals.values()) == self.counted.total()
        return totals


@pytest.mark.parametrize("variant", VARIANTS)
async def test_imported_while_the_old_application_goes_on(datastore: Datastore, old: Database, variant: str) -> None:
    counting = Counting(APPLICATIONS[variant](old), NAMES[:1] if variant == "simple" else NAMES)
    store = await datastore.store()
    await asyncio.to_thread(counting.count, 12)
    async with source_in(old, datastore.host, variant, named=True) as source:
        before = await asyncio.to_thread(counting.totals)
        assert changed(await imported(source, store, dry=True)) == before
        for name in {counting.names[0], counting.names[-1]}:
            some = {other: number for other, number in before.items() if other.startswith(name)}
            assert changed(await imported(source, store, name, dry=True)) == some
            one = await source.counter(name)
            assert (one and one.total) == before[name]
        assert [*await store.names("", "", 10)] == []
        assert changed(await imported(source, store)) == before
        writing = asyncio.create_task(asyncio.to_thread(counting.count, 18))
        while not writing.done():
            await killed(imported(source, store), random.uniform(0.01, 0.2))
        await writing
        await imported(source, store)
        after = await asyncio.to_thread(counting.totals)
        assert {name: await total(store, name) for name in counting.names} == after
        assert changed(await imported(source, store)) == {}
    assert {*(await verdicts(store)).values()} == {"agrees"}


async def killed(work: Any, seconds: float) -> None:
    """If it has not ended by then."""
    task = asyncio.create_task(work)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or changed(task.result()) is not None


async def test_kinds_that_the_server_lists_are_counters(datastore: Datastore, older_host: str) -> None:
    """Google's servers list kinds. Of the emulators only the older one does, and it may be imported from."""
    old = Database(older_host, datastore.place.project)
    counting = Counting(APPLICATIONS["java"](old), NAMES)
    await asyncio.to_thread(counting.count, 12)
    async with source_in(old, older_host, "java") as source:
        before = await asyncio.to_thread(counting.totals)
        assert changed(await imported(source, await datastore.store())) == before
    old.close()


async def test_who_lists_no_kinds_says_what_to_do(datastore: Datastore, old: Database) -> None:
    async with source_in(old, datastore.host, "java") as source:
        with pytest.raises(ExceptionGroup) as failed:
            await imported(source, await datastore.store())
    assert failed.group_contains(SettingsError, match="name each counter with --name")


async def test_two_imports_at_once(datastore: Datastore, old: Database) -> None:
    counting = Counting(APPLICATIONS["go"](old), NAMES)
    await asyncio.to_thread(counting.count, 12)
    stores = [await datastore.store() for _ in range(3)]
    async with source_in(old, datastore.host, "go") as source:
        told = await asyncio.gather(*(imported(source, store) for store in stores))
    added: Counter[str] = Counter()
    for one in told:
        added.update(changed(one))
    assert added == counting.counted
    assert {name: await total(stores[0], name) for name in NAMES} == counting.totals()


def flaws(told: Sequence[ImportOutcome | str]) -> dict[str, str]:
    return {one.name: one.flaw for one in told if isinstance(one, ImportOutcome) and one.flaw}


def added(told: Sequence[ImportOutcome | str]) -> dict[str, int]:
    return {one.name: one.added for one in told if isinstance(one, ImportOutcome) and one.added}


def left_out(told: Sequence[ImportOutcome | str]) -> list[str]:
    return [one for one in told if isinstance(one, str)]


async def test_what_ndb_does_not_count_is_left_out(datastore: Datastore, old: Database) -> None:
    def write() -> None:
        for name, number in (("well", 2), ("none", 0), ("odd", "two"), ("many", 10**6), ("bad", 1)):
            old.put(old.key(CONFIG, name), num_shards=number)
        old.put(old.key(CONFIG, "bare"))
        old.put(old.key(CONFIG, 7), num_shards=1)
        for shard in ("well-0", "well-1", "well-2", "none-0", "alone-0", "alone-19", "alone-20", "bare-19", "bare-20"):
            old.put(old.key(SHARD, f"shard-{shard}"), count=1)
        old.put(old.key(SHARD, "shard-bad-0"), count=1.5)
        old.put(old.key(SHARD, "shard-well-1"), count=1.0)  # a whole number all the same
        old.put(old.key(SHARD, "other"), count=1)
        old.put(old.key(SHARD, "shard-well-01"), count=1)
        old.put(old.key(SHARD, 7), count=1)
        old.put(old.key(SHARD, "well", SHARD, "shard-well-0"), count=1)

    await asyncio.to_thread(write)
    store = await datastore.store()
    async with source_in(old, datastore.host, "ndb") as source:
        told = await imported(source, store)
        alone = await source.counter("alone")
    assert alone is not None
    assert alone.total == 2
    assert added(told) == {"well": 2, "alone": 2, "bare": 1}
    assert flaws(told) == {
        "odd": f"num_shards of {CONFIG} odd is no whole number, but a string",
        "many": f"{CONFIG} many says 1000000 shards, which is not possible",
        "bad": f"count of {SHARD} shard-bad-0 is no whole number, but a double",
    }
    fewer, odd = "its counter has fewer shards", "it is no shard of this variant"
    assert sorted(left_out(told)) == sorted(
        [
            *(f"{SHARD} shard-{one} is left out: {fewer}" for one in ("well-2", "none-0", "alone-20", "bare-20")),
            *(f"{SHARD} {one} is left out: {odd}" for one in ("other", "shard-well-01", "7")),
            f"{SHARD} well {SHARD} shard-well-0 is left out: {odd}",
            f"{CONFIG} 7 is left out: it has a number instead of a name",
        ]
    )


async def test_what_others_do_not_count(datastore: Datastore, old: Database) -> None:
    def write() -> None:
        entities: dict[str, dict[str, Any]] = {
            "x-shard0": {"Name": "x", "Count": 5},
            "x-shard99": {"Name": "x", "Count": 2},
            "any": {"Name": "x"},
            "number": {"Name": 7, "Count": 1},
            "nobody": {"Count": 1},
            "null": {"Name": "null", "Count": None},
            "text": {"Name": "text", "Count": "1"},
            "a\nb": {"Name": "a\nb", "Count": 1},
            "empty": {"Name": "", "Count": 1},
            "big0": {"Name": "big", "Count": 2**63 - 1},
            "big1": {"Name": "big", "Count": 1},
            "most": {"Name": "most", "Count": 2**63 - 1},
        }
        for key, properties in entities.items():
            old.put(old.key(SHARD, key), **properties)
        old.put(old.key(CONFIG, "x"), Shards=1)
        old.put(old.key(CONFIG, "config alone"), Shards=1)

    await asyncio.to_thread(write)
    store = await datastore.store()
    async with source_in(old, datastore.host, "go") as source:
        told = await imported(source, store)
    assert added(told) == {"x": 7, "most": 2**63 - 1, "big": 2**63}
    assert flaws(told) == {
        "null": f"Count of {SHARD} null is no whole number, but a null",
        "text": f"Count of {SHARD} text is no whole number, but a string",
        "a\nb": "its name must not hold control characters",
        "": "its name must not be empty",
    }
    assert left_out(told) == [f"{SHARD} number is left out: it does not name its counter"]
    assert (await total(store, "most"), await total(store, "big")) == (2**63 - 1, 2**63)


async def test_what_shrank_is_read_again_and_left(datastore: Datastore, old: Database) -> None:
    application = APPLICATIONS["db"](old)
    store = await datastore.store()
    keys: list[Any] = []
    while len(keys) < 2:  # who has lost all shards is not seen any more
        await asyncio.to_thread(Counting(application, NAMES).count, 6)
        keys = [entity.key for entity in old.client.query(kind=SHARD).fetch() if entity["name"] == NAMES[3]]
    before = await asyncio.to_thread(application.get_count, NAMES[3])
    async with source_in(old, datastore.host, "db") as source:
        await imported(source, store)
        await asyncio.to_thread(old.client.delete, keys[0])
        now = await asyncio.to_thread(application.get_count, NAMES[3])
        assert flaws(await imported(source, store)) == {
            NAMES[3]: f"its total fell to {now}, and {before} were imported before: subtract with --shrink"
        }
        assert await total(store, NAMES[3]) == before
        assert added(await imported(source, store, shrink=True)) == {NAMES[3]: now - before}
        assert await total(store, NAMES[3]) == now


@pytest.mark.parametrize("variant", ["ndb", "db"])
async def test_more_pages_than_one(datastore: Datastore, old: Database, variant: str, page_of_20: None) -> None:
    """Of shards, of configs, and of those that are looked up together."""
    names = [f"name-{number:03}" for number in range(110)]

    def write() -> None:
        with old.client.batch():
            for name in names:
                old.put(old.key(CONFIG, name), num_shards=4)
                old.put(old.key(SHARD, f"shard-{name}-0"), count=1, name=name)
                old.put(old.key(SHARD, f"shard-{name}-3"), count=2, name=name)

    await asyncio.to_thread(write)
    store = await datastore.store()
    async with source_in(old, datastore.host, variant) as source:
        assert changed(await imported(source, store)) == dict.fromkeys(names, 3)
        assert changed(await imported(source, store, "name-1")) == {}


@pytest.fixture
def page_of_20(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.datastore.importing.PAGE", 20)
    monkeypatch.setattr("shared.datastore.importing.MOST_CONFIGS", 15)
    monkeypatch.setattr("shared.datastore.importing.MOST_SHARD_KEYS", 50)
