"""From one kind of place to another: a copy takes all along, also under load and if it was killed.

With COUNTERSINK_TELL=1 it goes every way, and prints the rows of the table in docs/moving.md.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.datastore.fleet import DatastoreFleetBook
from shared.model.buckets import DAY, HOUR, BucketAdd, ByTime, StoreMillis, TimeBucket
from shared.model.receipts import key_of_increment
from shared.model.words import Commit, Mark, Receipt, ShardAdd
from shared.ports.store import Store
from shared.runtime.clock import SystemClock
from shared.sqlite.database import Database
from shared.sqlite.store import SqliteStore
from tests.cli.running import environment, run
from tests.contracts.by_time import KEPT, hours
from tests.emulators.datastore_fixtures import Datastore
from tests.meta.checkout import ROOT

COUNTERS = 300
"""Each with a count by time and an id."""
IN_COMMIT = 100
PAUSE = 0.02
"""Seconds between two increments."""
WITHIN = 120.0
KINDS = ("file", "Datastore", "lines")
TELLS = bool(os.environ.get("COUNTERSINK_TELL"))
WAYS = [("file", "file"), ("file", "lines"), ("lines", "file"), ("Datastore", "lines"), ("Datastore", "Datastore")]
"""A copy knows both ends by the same ports, so these show each kind as an origin and as a target."""
EVERY_WAY = [way for way in itertools.product(KINDS, KINDS) if way != ("lines", "lines")]


class Place(NamedTuple):
    url: str
    store: Store | None = None
    """None for a file of lines."""


@dataclass
class Load:
    """Adds 1 with an id, in total and by time, and moves a mark."""

    store: Store
    totals: dict[str, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    async def add(self, names: Sequence[str]) -> None:
        later = StoreMillis(await self.store.now() + 9 * DAY)
        keys = [key_of_increment(name, f"{self.totals.get(name, 0)}") for name in names]
        adds = tuple(ShardAdd(name, 0, 1, 1) for name in names)
        buckets = tuple(BucketAdd(TimeBucket(name, "hour", HOUR), 0, 1, later) for name in names)
        receipts = tuple(Receipt(key, later) for key in keys)
        seen = {name: self.totals.get(name, 0) for name in names}
        marks = tuple(Mark("elsewhere", name, number, number + 1) for name, number in seen.items())
        await self.store.apply(Commit(receipts, adds, by_time=ByTime(buckets, KEPT), marks=marks))
        self.keys += keys
        self.totals |= {name: self.totals.get(name, 0) + 1 for name in names}

    async def until(self, stop: asyncio.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            await self.add([f"page:{number % COUNTERS}"])
            await asyncio.sleep(PAUSE)

    async def check(self, store: Store) -> None:
        """Everything is there, once."""
        names = [*self.totals]
        async with store.snapshot() as snapshot:
            totals, found = await snapshot.read(names, self.keys)
        assert {name: one.value for name, one in totals.items()} == self.totals
        assert {*found} == {*self.keys}
        assert await store.marks("elsewhere", names) == self.totals
        for name in names:
            assert await hours(store, name) == {1: self.totals[name]}


@asynccontextmanager
async def place(kind: str, name: str, folder: Path, host: str) -> AsyncIterator[Place]:
    file = folder / name
    if kind == "lines":
        yield Place(f"{file}.ndjson")
    elif kind == "file":
        database = Database(file)
        yield Place(f"sqlite:///{file}", SqliteStore(database, SystemClock()))
        await database.close()
    else:
        there = Datastore(host)
        store = await there.store()
        yield Place(f"datastore://{there.place.project}?namespace={there.place.namespace}", store)
        for client in there.clients:
            await client.close()


async def copied(origin: str, target: str, host: str, *, whole: bool) -> float:
    """The seconds that it took. `whole`: nothing may differ or wait."""
    begun = time.monotonic()
    arguments = ("copy", "--from", origin, "--to", target)
    done = await asyncio.to_thread(run, *arguments, cwd=None, DATASTORE_EMULATOR_HOST=host)
    assert done.code == 0 if whole else done.code in {0, 1} and "Traceback" not in str(done), done
    return time.monotonic() - begun


async def killed(origin: str, target: Place, key: str, host: str) -> None:
    """Kill a copy as soon as something is there: any total, or the receipt of this key if it is not empty."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "countersink", "copy", "--from", origin, "--to", target.url),
        env=environment(DATASTORE_EMULATOR_HOST=host),
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )

    async def is_something_there() -> bool:
        if target.store is None:
            return any("two.ndjson." in one.name for one in Path(target.url).parent.iterdir())
        if key:
            return bool((await target.store.receipts([key])).found)
        return bool(await target.store.names("", "", 1))

    async with asyncio.timeout(WITHIN):
        while process.returncode is None and not await is_something_there():
            await asyncio.sleep(0.005)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def in_lines(file: str) -> tuple[int, int]:
    """The sum of all totals, and the number of ids."""
    said = [json.loads(line) for line in Path(file).read_bytes().splitlines()]
    return sum(one["value"] for one in said if "value" in one), len([one for one in said if "receipt" in one])


async def test_a_copy_begins_the_fleet_of_a_new_store(datastore: Datastore) -> None:
    """Or its receipts would be taken for those of a fleet that is lost, and nothing be exact for more than an hour."""
    url = f"datastore://{datastore.place.project}?namespace={datastore.place.namespace}"
    await copied(str(ROOT / "tests" / "releases" / "0.1.0" / "copy.ndjson"), url, datastore.host, whole=False)
    fleet = (await DatastoreFleetBook(datastore.client()).look()).fleet
    assert fleet.version
    assert not fleet.members


@pytest.mark.parametrize(("origin", "target"), EVERY_WAY if TELLS else WAYS, ids=str)
async def test_everything_is_taken_along_while_it_counts_and_after_it_was_killed(
    origin: str, target: str, firestore_host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = firestore_host
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(place("file" if origin == "lines" else origin, "one", tmp_path, host))
        to = await stack.enter_async_context(place(target, "two", tmp_path, host))
        assert there.store is not None
        load, stop = Load(there.store), asyncio.Event()
        for begin in range(0, COUNTERS, IN_COMMIT):
            await load.add([f"page:{number}" for number in range(begin, begin + IN_COMMIT)])
        counting = asyncio.create_task(load.until(stop))
        try:
            lines = f"{tmp_path / 'lines.ndjson'}"
            if origin == "lines":
                await copied(there.url, lines, host, whole=True)  # while it counts
            url = lines if origin == "lines" else there.url
            for key in ("", load.keys[0]):
                await killed(url, to, key, host)
            first = await copied(url, to.url, host, whole=to.store is None or origin == "lines")
            if to.store is None:  # all of it is of one instant
                counted, ids = in_lines(to.url)
                assert counted == ids > COUNTERS
        finally:
            stop.set()
            await counting
        if origin == "lines":
            await copied(there.url, lines, host, whole=True)
        last = await copied(url, to.url, host, whole=True)
        if to.store is None:
            lines, to = to.url, await stack.enter_async_context(place("file", "three", tmp_path, host))
            await copied(lines, to.url, host, whole=True)
        assert to.store is not None
        await load.check(to.store)
    if TELLS:
        with capsys.disabled():
            print(f"\n| {origin} → {target} | {len(load.keys)} ids | {first:.1f} s | {last:.1f} s |")  # noqa: T201
