"""Everything is found in the files and messages of each release, today and in three years."""

import asyncio
import gzip
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from countersink import AsyncClient
from shared.model.buckets import BrokerMillis
from shared.model.moving import Foreign
from shared.model.receipts import key_of_increment
from shared.model.words import Delivery, Message
from shared.moving.ours import CopyFile
from shared.sqlite.database import Database
from shared.wire.codec import decode
from tests.emulators.redis_fixtures import RedisServer
from tests.meta.checkout import releases
from tests.processes.fleet.pairs import Emulated
from tests.processes.harness import processes
from tests.processes.moved_clocks import DAY, Clocks
from tests.releases import RELEASES, SETTINGS, TOPIC
from tests.releases.__main__ import meaning, spool_in
from tests.releases.entities import put_entities, settings_of
from tests.world.manual_clock import ManualClock

WITHIN = 60.0

of_each_release = pytest.mark.parametrize("release", RELEASES, ids=[path.name for path in RELEASES])


def unpacked(release: Path, name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((release / f"{name}.gz").read_bytes()))
    return path


def read(release: Path, name: str) -> Any:
    return json.loads((release / name).read_text())


def test_each_release_is_there_and_this_version_if_it_is_one() -> None:
    """`python -m tests.releases` makes it."""
    assert sorted(path.name for path in RELEASES) == sorted(releases())


@of_each_release
def test_each_message_counts_the_same_under_the_same_receipts(release: Path) -> None:
    messages = read(release, "messages.json")
    assert messages
    for kept in messages:
        assert meaning(Message(kept["data"].encode(), kept["attributes"])) == kept


@of_each_release
async def test_each_envelope_of_the_spool_is_read(release: Path, tmp_path: Path) -> None:
    unpacked(release, "spool.db", tmp_path)
    spool = spool_in(tmp_path)
    rows = spool.rows()
    found = [envelope.key async for envelope, _ in rows.read()]
    assert rows.unreadable is False
    await spool.close()
    kept = [kept for kept in read(release, "messages.json") if kept["attributes"].get("ce-source") == "countersink"]
    assert found == [envelope["receipt"] for message in kept for envelope in message["envelopes"]]


@of_each_release
async def test_each_line_of_a_copy_is_read(release: Path) -> None:
    """What waited is not in it."""
    expected = read(release, "expected.json")
    applied = expected["batch"]["counters"]
    origin = CopyFile(release / "copy.ndjson", ManualClock(datetime.fromisoformat(expected["day"]).timestamp()))
    assert {one.name: one.total async for one in origin.counters("") if isinstance(one, Foreign)} == applied
    assert {one.bucket.counter: one.held async for some in origin.counts("") for one in some} == applied
    kept = [one.key async for some in origin.receipts() for one in some]
    assert {*kept} > {key_of_increment(name, id_) for name, _, id_ in expected["ids"][:1]}
    assert await origin.waiting() == 2


def columns(path: Path) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        found = [(name, *row[1:]) for (name,) in tables for row in db.execute(f"PRAGMA table_xinfo({name})")]
        return {*found, *db.execute("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'")}


@of_each_release
async def test_a_converted_file_has_the_tables_of_a_new_one(release: Path, tmp_path: Path) -> None:
    old, new = unpacked(release, "countersink.db", tmp_path), tmp_path / "new.db"
    for path in (old, new):
        await Database(path).close()
    assert columns(old) == columns(new)


@of_each_release
async def test_everything_in_the_file_counts(release: Path, tmp_path: Path) -> None:
    await everything_counts(release, tmp_path, {})


@of_each_release
@pytest.mark.check  # a C compiler
async def test_everything_in_the_file_counts_three_years_later(
    release: Path, tmp_path: Path, clocks: Callable[[], Clocks]
) -> None:
    moved = clocks()
    moved.move(real=3 * 365 * DAY)
    await everything_counts(release, tmp_path, moved.environment)


@of_each_release
async def test_everything_in_datastore_counts(
    release: Path, on_emulators: Emulated, redis: RedisServer, tmp_path: Path
) -> None:
    """The record of the fleet too: reads on a new Redis become exact."""
    kept = read(release, "entities.json")
    await put_entities(on_emulators, kept["entities"])
    async with processes(tmp_path, tmp_path / "log", **settings_of(on_emulators, redis)) as started:
        ingest = await started.start("ingest", "--port", "0")
        await started.start("flusher")
        async with AsyncClient(ingest.url) as client:
            await what_was_counted_counts_once(client, kept)
            async with asyncio.timeout(WITHIN):
                while not (await client.get("orders", max_age=0)).exact:
                    await asyncio.sleep(0.1)
        async with aiohttp.ClientSession(ingest.url) as session:
            await its_counts_by_time_are_there(session, kept)


async def everything_counts(release: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    unpacked(release, "countersink.db", tmp_path)
    expected = read(release, "expected.json")
    job = expected["job"]
    async with processes(tmp_path, tmp_path / "log", **SETTINGS, **environment) as started:
        running = await started.start("up", "--port", "0")
        async with AsyncClient(running.url) as client:
            async with asyncio.timeout(WITHIN):
                while (done := await client.job(job["id"])).state == "running":
                    await asyncio.sleep(0.02)
            assert (done.state, done.changed, done.failed) == ("done", job["counters"], 0)
            values = [one.value async for one in client.list(job["prefix"], page=1_000)]
            assert values == [job["each"]] * job["counters"]
            await what_was_counted_counts_once(client, expected)
            for name in expected["totals"]:
                assert (await client.get(name, max_age=0)).exact, name
            for name, value in expected["replayed"].items():
                reading = await client.get(name, max_age=0)
                assert (reading.value, reading.pending, reading.exact) == (value, value, True), name
        async with aiohttp.ClientSession(running.url) as session:
            await its_dead_letters_are_replayed(session, expected)
            await its_counts_by_time_are_there(session, expected)
        audit = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "countersink", "audit"),
            env=started.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await audit.communicate()
        assert audit.returncode == 0, said.decode()


async def what_was_counted_counts_once(client: AsyncClient, expected: dict[str, Any]) -> None:
    for name, delta, id_ in expected["ids"]:
        assert (await client.increment(name, delta, id=id_, wait=WITHIN)).duplicates == 1
    batch = expected["batch"]
    again = await client.increment_many(batch["counters"], key=batch["key"], wait=WITHIN)
    assert again.duplicates == len(batch["counters"])
    for name, value in expected["totals"].items():
        reading = await client.get(name, max_age=0)
        assert (reading.value, reading.pending) == (value, 0), name
    for name in expected["missing"]:
        assert not (await client.get(name)).exists


async def its_dead_letters_are_replayed(session: aiohttp.ClientSession, expected: dict[str, Any]) -> None:
    async with session.get("/v1/dead-letters") as response:
        assert len((await response.json())["dead_letters"]) == expected["dead_letters"]
    async with session.post("/v1/dead-letters/replay", json={"all": True}) as response:
        replayed = await response.json()
        assert (replayed["counted"], replayed["letters_left"]) == (len(expected["replayed"]), 1), replayed
    for name, value in expected["replayed"].items():
        async with session.get(f"/v1/counters/{name}?max_age=0") as response:
            reading = await response.json()
            assert (reading["value"], reading["pending"]) == (value, 0)


async def its_counts_by_time_are_there(session: aiohttp.ClientSession, expected: dict[str, Any]) -> None:
    begin = datetime.fromisoformat(expected["day"]).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, count in expected["of_the_day"].items():
        async with session.get(f"/v1/counters/{name}/series?by=day&from={begin}") as response:
            assert (await response.json())["points"][0] == {"from": begin, "count": count}


def test_messages_of_other_publishers_have_their_receipts_by_the_topic() -> None:
    """So a test of `TOPIC` alone would not notice if another topic gave the same ones."""
    delivery = Delivery("", Message(b'{"counter":"a"}'), "1", BrokerMillis(1))
    assert decode(delivery, TOPIC)[0].key != decode(delivery, "another")[0].key
