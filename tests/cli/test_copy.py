"""countersink copy between files: what it takes along, what it refuses, and what it says."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from countersink import AsyncClient
from countersink_server.move.copier import WHAT, Copier, CopyReport
from countersink_server.move.importer import ImportOptions
from shared.config.settings import Settings
from shared.memory import ProcessOverlay
from shared.model.buckets import DAY, NEVER, BrokerMillis, Millis, StoreMillis, WallMillis
from shared.model.dead_letters import with_body
from shared.model.errors import SettingsError
from shared.model.jobs import ADD, DONE, EXPORT, FAILED, RESET, RUNNING, Job, JobState, Progress
from shared.model.moving import Origin, moved_receipt
from shared.model.receipts import (
    Tally,
    copied_from,
    key_of_envelope,
    key_of_increment,
    key_of_set,
    notes_of_change,
    notes_of_commit,
)
from shared.model.words import DEAD, Commit, Envelope, Guard, Mark, Receipt, ShardAdd
from shared.moving.ours import CopyFile, StoreOrigin, written
from shared.runtime.clock import SystemClock
from shared.sqlite import schema
from shared.sqlite.buckets import SqliteArrivals
from shared.sqlite.database import Database
from shared.sqlite.jobs import SqliteJobs
from shared.sqlite.store import SqliteStore
from shared.wiring.files import refuse_older
from shared.wiring.moving import End, end_of
from tests.cli.running import Done, run
from tests.contracts.by_time import adding, hours
from tests.contracts.store import commit, total
from tests.processes.harness import Processes, processes

NOW = StoreMillis(1_000)
LATER = StoreMillis(1_000 + DAY)
NONE = Millis(0)
MINUTE = 60_000


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path, COUNTERSINK_WINDOWS="=hour/90d", COUNTERSINK_FLUSH_INTERVAL="0.05") as all_of_them:
        yield all_of_them


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def copy(origin: object, target: object, *more: str) -> tuple[Done, dict[str, Any]]:
    done = run("copy", "--from", f"{origin}", "--to", f"{target}", "--json", *more, cwd=None)
    return done, json.loads((done.out.splitlines() or ["{}"])[-1])


async def send(address: str, path: str, body: object, **headers: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        method = session.put if "value" in str(body) else session.post
        async with method(f"{address}{path}", json=body, headers=headers) as answer:
            assert answer.status in {200, 202}, await answer.text()
            return dict(await answer.json())


async def test_totals_counts_by_time_and_ids_are_taken_along_by_way_of_a_file_too(
    started: Processes, tmp_path: Path
) -> None:
    one, lines, two = tmp_path / "countersink.db", tmp_path / "copy.ndjson", tmp_path / "two.db"
    service = await started.start("up", "--port", "0")
    requests: tuple[tuple[str, Any, dict[str, str]], ...] = (
        ("/v1/increments", [{"counter": "a", "delta": 5, "id": "x"}, {"counter": "b", "delta": 2}], {}),
        ("/v1/increments", {"counters": {"a": 10, "c": 3}}, {"Idempotency-Key": "k"}),
        ("/v1/counters/d", {"value": 7}, {"Idempotency-Key": "s"}),
        ("/v1/counters/d", {"value": 0}, {"Idempotency-Key": "t"}),
    )
    for path, body, headers in requests:
        await send(service.url, path, body, **headers)
    await jobs(service.url)
    await service.end(15)
    imported(tmp_path, one, 100, adds=100)

    for target in (lines, lines, url(two), url(two)):
        done, _ = await asyncio.to_thread(copy, lines if target == url(two) else url(one), target)
        assert (done.code, done.lines) == (0, [])
    done, said = await asyncio.to_thread(copy, url(one), url(two))  # directly: it is the same data
    assert (done.code, said["differences"], said["waiting"]) == (0, 0, 0)
    assert said["origin"] == {"counters": 7, "counts_by_time": 5, "receipts": 6, "marks": 1, "jobs": 2}
    assert said["copied"] == dict.fromkeys(WHAT, 0)
    imported(tmp_path, two, 103, adds=3)

    service = await started.start("up", "--port", "0", COUNTERSINK_BROKER=url(two))
    assert (await send(service.url, "/v1/counters/d", {"value": 7}, **{"Idempotency-Key": "s"})) == {
        "name": "d",
        "before": 0,
        "after": 7,
    }  # what it answered before: it is not set again
    await jobs(service.url)
    repeated = {"counter": "a", "delta": 5, "id": "x"}
    assert (await send(service.url, "/v1/counters/a?wait=applied", {"delta": 5, "id": "x"}))["duplicate"]
    assert (await send(service.url, "/v1/increments?wait=applied", requests[1][1], **requests[1][2]))["duplicate"]
    await send(service.url, "/v1/increments?wait=applied", [repeated, {"counter": "a", "delta": 1}])
    async with aiohttp.ClientSession() as session, session.get(f"{service.url}/v1/counters?prefix=") as answer:
        counters = {each["name"]: (each["value"], each["exists"]) for each in (await answer.json())["counters"]}
    known = {"a": (16, True), "b": (2, True), "c": (3, True), "d": (0, True)}
    assert counters == {**known, "gone": (0, True), "imported": (103, True), "job:e": (15, True)}
    async with aiohttp.ClientSession() as session, session.get(f"{service.url}/v1/counters/a/series?by=hour") as answer:
        assert (await answer.json())["total"] == 16
    await service.end(15)
    assert (await asyncio.to_thread(run, "audit", cwd=None, COUNTERSINK_BROKER=url(two))).code == 0


async def jobs(address: str) -> None:
    """Started before and after the move, they have the same results."""
    async with AsyncClient(address) as client:
        if not (await client.get("job:e")).exists:
            await client.increment_many({"job:e": 5, "gone": 7}, wait=60)
        for kind, prefix, delta in ((ADD, "job:", 10), (RESET, "gone", None)):
            while (job := await client.start_job(kind, prefix, delta, id=f"once-{kind}")).state == RUNNING:
                await asyncio.sleep(0.02)
            assert (job.state, job.changed) == (DONE, 1)
        assert b"".join([line async for line in client.export("once-reset")]) == b'{"name":"gone","before":7}\n'


def imported(folder: Path, into: Path, total: int, *, adds: int) -> None:
    (folder / "export").write_text(f'{{"name": "imported", "value": {total}}}\n')
    arguments = ("import", "--variant", "export", "--from", str(folder / "export"), "--all", "--json")
    done = run(*arguments, cwd=None, COUNTERSINK_BROKER=url(into))
    assert json.loads(done.out.splitlines()[0])["added"] == adds, done


async def two_files(folder: Path) -> tuple[SqliteStore, SqliteStore, Database, Database]:
    databases = Database(folder / "one.db"), Database(folder / "two.db")
    stores = [SqliteStore(each, SystemClock()) for each in databases]
    return stores[0], stores[1], *databases


Files = tuple[SqliteStore, SqliteStore]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    one, two, *databases = await two_files(tmp_path)
    yield one, two
    for each in databases:
        await each.close()


async def nothing() -> int:
    return 0


def copier_of(
    one: SqliteStore,
    two: SqliteStore,
    *,
    dry: bool = False,
    merge: bool = False,
    waits: Millis = NONE,
    origin: Origin | None = None,
) -> Copier:
    clock, arrivals = SystemClock(), SqliteArrivals(two.database)
    return Copier(
        origin or StoreOrigin(one, "one", nothing),
        End(StoreOrigin(two, "two", nothing), two, arrivals, ProcessOverlay(clock), clock, waits),
        ImportOptions(Millis(DAY), dry=dry, shrink=True),
        merge=merge,
        progress=lambda *_: None,
    )


async def copied(
    one: SqliteStore, two: SqliteStore, *, dry: bool = False, merge: bool = False, lines: Path | None = None
) -> CopyReport:
    """`lines`: by way of a file of lines in this folder."""
    origin = CopyFile(await in_lines(one, lines), SystemClock()) if lines else None
    copier = copier_of(one, two, dry=dry, merge=merge, origin=origin)
    await copier.copy("")
    await copier.compare("")
    return copier.report


async def test_a_file_of_lines_is_of_one_instant_though_the_origin_counts(files: Files) -> None:
    one, _ = files
    await one.apply(replace(adding((1, 5)), receipts=(Receipt(key_of_increment("a", "x"), LATER),)))
    seen = []
    async for line in written(StoreOrigin(one, "one", nothing), "", WallMillis(0)):
        seen.append(json.loads(line))
        more = Receipt(key_of_increment("a", f"{len(seen)}"), LATER)
        await one.apply(replace(adding((1, 1)), receipts=(more,)))
    (total_of_a,) = [one["value"] for one in seen if "value" in one]
    (counts,) = [one["counts"] for one in seen if "counts" in one]
    assert (total_of_a, counts[0][1], len([one for one in seen if "receipt" in one])) == (5, 5, 1)


async def test_a_copy_neither_writes_nor_converts_its_origin_and_a_dry_run_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one.db"
    database = Database(file)
    await SqliteStore(database, SystemClock()).apply(commit(("a", 5)))
    await database.close()
    before = file.read_bytes()
    one_more = schema.Step("7.8.9", "ALTER TABLE shards ADD COLUMN b INTEGER")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, one_more))
    for makes in (False, True):
        async with end_of(Settings(), "--from", url(file), makes=makes, still=True) as end:
            assert await total(end.store, "a") == 5
            assert not end.origin.went_on()
    with pytest.raises(SettingsError, match="run that of the release before, or start the service first"):
        refuse_older(Settings(broker=url(file)))
    assert file.read_bytes() == before
    assert not schema._copy_of(file, schema.FIRST).exists()


async def test_what_is_counted_in_the_origin_meanwhile_is_noticed(files: Files, tmp_path: Path) -> None:
    one, _ = files
    await one.apply(commit(("a", 5)))
    async with end_of(Settings(), "--from", url(tmp_path / "one.db"), makes=False, still=True) as end:
        assert not end.origin.went_on()
        await one.apply(commit(("a", 1)))
        assert end.origin.went_on()
        assert await total(end.store, "a") == 5


async def test_what_is_counted_between_two_copies_is_added_and_what_was_taken_off_is_taken_off(files: Files) -> None:
    one, two = files
    await one.apply(Commit((Receipt("d1", LATER),), (), guard=("deleted", Guard(0, deleted=True))))
    for deltas, there in (((5, 0), 5), ((3, 0), 8), ((-6, -6), -4)):
        for delta in deltas:
            await one.apply(adding((1, delta)))
        report = await copied(one, two)
        assert (await total(two, "a"), await two.names("", "", 10), report.differences) == (there, ["a"], [])
        assert await hours(two) == {1: there}


async def test_a_counter_that_holds_something_else_is_left_alone_unless_it_shall_be_merged(files: Files) -> None:
    one, two = files
    await one.apply(adding((1, 5)))
    await one.apply(commit(("b", 2)))
    await two.apply(adding((1, 5)))  # as if it had been copied from there
    for _ in range(2):
        report = await copied(one, two)
        assert report.differences == [("a", "of the target's 5, 5 was not copied from here")]
        assert (await total(two, "a"), await hours(two), await total(two, "b")) == (5, {1: 5}, 2)
    for _ in range(2):
        report = await copied(one, two, merge=True)
        assert (await total(two, "a"), await hours(two), report.differences) == (10, {1: 10}, [])


async def test_totals_beyond_64_bits_are_copied_and_counts_by_time_beyond_them_are_named(files: Files) -> None:
    one, two = files
    for shard in range(6):
        both = adding((1, 2**61), (2, 3), shard=shard)
        await one.apply(replace(both, adds=(ShardAdd("a", shard, 2**61, 6),)))
    await one.apply(adding((1, 5), counter="b"))
    for there in (6 * 2**61, 2**63 - 1, 2**63 + 7):
        await one.apply(commit(ShardAdd("a", 0, there - await total(one, "a"), 6)))
        report = await copied(one, two)
        assert report.differences == [("a", f"{6 * 2**61} in a hour is beyond 64 bits")]
        assert [await total(two, "a"), await total(two, "b")] == [there, 5]
        assert (await hours(two), await hours(two, "b")) == ({2: 18}, {1: 5})


@pytest.mark.parametrize("end", ["set", "delete"])
async def test_on_the_way_back_counts_by_time_of_what_is_0_in_the_old_file_are_left_alone(
    files: Files, end: str
) -> None:
    one, two = files
    await one.apply(adding((1, 5)))
    await one.apply(adding((1, 2), counter="b"))
    await copied(one, two)
    await one.apply(replace(commit(("a", -5)), guard=("a", Guard(0, deleted=end == "delete"))))
    await two.apply(commit(("a", -5)))
    for dry in (True, False):
        report = await copied(two, one, dry=dry)
        assert ("a", "the target has counts by time that were not copied from here") in report.differences
        assert (await total(one, "a"), await hours(one), await hours(one, "b")) == (0, {1: 5}, {1: 2})


@pytest.mark.parametrize("by_file", [False, True])
async def test_a_merge_names_what_both_have_counted_and_not_what_a_copy_took_along(
    files: Files, by_file: bool, tmp_path: Path
) -> None:
    one, two = files

    async def counted(store: SqliteStore, *ids: str) -> None:
        later = StoreMillis(await store.now() + DAY)
        receipts = tuple(Receipt(key_of_increment("a", each), later) for each in ids)
        await store.apply(replace(commit(("a", len(ids))), receipts=receipts))

    await counted(one, "before")
    assert (await copied(one, two)).differences == []
    for each in (one, two):
        await counted(each, "straggler")
    await counted(two, "new")
    key = key_of_increment("a", "straggler")
    twice = f"an id was counted in both places, so it counts twice: receipt {key}"
    for _ in range(2):
        assert (await copied(one, two, merge=True, lines=tmp_path if by_file else None)).differences == [("", twice)]
        assert await total(two, "a") == 4


async def test_what_was_counted_and_is_a_dead_letter_in_the_target_is_named(files: Files) -> None:
    """Its client got no answer, and sent it again to the new place, where it was refused."""
    one, two = files
    key = key_of_envelope("request")
    later = StoreMillis(await one.now() + 10 * DAY)
    (note,) = notes_of_commit(["t1"], "c", Tally(1), {"a": 5})
    await one.apply(Commit((Receipt(key, later, note=note),), (ShardAdd("a", 0, 5, 1),)))
    letter = Envelope("request", {"a": 5}, retried=True, attempt="t2")
    await two.apply(Commit((with_body(Receipt(key, NEVER, DEAD), letter, "refused", BrokerMillis(1)),), ()))
    ((_, why),) = (await copied(one, two)).differences
    assert f"a replay would count it twice: drop it there, with countersink dlq drop {key}" in why


@pytest.mark.parametrize("waits", [NONE, Millis(9 * DAY)])
async def test_where_a_retry_may_wait_in_the_broker_a_receipt_lives_so_much_longer(files: Files, waits: Millis) -> None:
    one, two = files
    key, begun = key_of_increment("a", "x"), await two.now()
    await one.apply(Commit((Receipt(key, StoreMillis(await one.now() + DAY)),), ()))
    await copier_of(one, two, waits=waits).copy("")
    expires = (await two.receipts([key])).found[key].expires
    assert 0 <= begun + DAY + waits - expires + MINUTE <= 2 * MINUTE


def test_what_to_do_about_a_counter_that_has_counted_in_the_target_is_said_and_helps(tmp_path: Path) -> None:
    for folder, number in (("one", "5"), ("two", "3")):
        assert run("provision", "--data", folder, cwd=tmp_path, COUNTERSINK_EXISTING="yes").code == 0
        assert run("set", "a", number, "--data", folder, cwd=tmp_path).code == 0
        assert run("set", "b", number, "--data", folder, cwd=tmp_path).code == 0
    places = [url(tmp_path / folder / "countersink.db") for folder in ("one", "two")]
    done, _ = copy(*places)
    assert done.code == 1
    for remedy in ("To have what the origin has, copy to a new place", "delete it in the target", "use --merge"):
        assert remedy in done.lines[-1]
    assert run("delete", "a", "--data", "two", cwd=tmp_path).code == 0
    assert copy(*places)[1]["differences"] == 1
    done, _ = copy(*places, "--merge")
    assert (done.code, done.lines) == (0, [])
    said = run("get", "a", "b", "--data", "two", cwd=tmp_path).out
    assert said == "a  5\nb  8\n"
    done = run("copy", "--from", "sqlite:///one/countersink.db", "--to", "sqlite:///two/countersink.db", cwd=tmp_path)
    assert f"\ntarget: {tmp_path}/two/countersink.db\n" in done.out


async def test_what_differs_at_the_end_is_said(files: Files) -> None:
    one, two = files
    await one.apply(adding((1, 5)))
    await one.apply(commit(("b", 2)))
    copier = copier_of(one, two)
    await copier.copy("")
    await one.apply(adding((1, 3), (2, 1)))
    await two.apply(commit(("b", 1)))
    await copier.compare("")
    assert copier.report.differences == [
        ("a", "9 in the origin, 5 in the target"),
        ("b", "2 in the origin, 3 in the target"),
        ("", "2 counts by time differ"),
    ]


@pytest.mark.parametrize("by_file", [False, True])
async def test_a_mark_there_is_what_was_imported_by_way_of_both(files: Files, by_file: bool, tmp_path: Path) -> None:
    """Much of it is 2, which the origin had from elsewhere."""
    one, two = files

    async def imports(store: SqliteStore, delta: int) -> None:
        before = (await store.marks("redis", ["a"])).get("a", 0)
        await store.apply(replace(commit(("a", delta)), marks=(Mark("redis", "a", before, before + delta),)))

    async def copies(*, dry: bool = False, merge: bool = False) -> list[tuple[str, str]]:
        return (await copied(one, two, dry=dry, merge=merge, lines=tmp_path if by_file else None)).differences

    async def there() -> tuple[int, int]:
        return await total(two, "a"), (await two.marks("redis", ["a"])).get("a", 0)

    await one.apply(replace(commit(("a", 2)), marks=(Mark("copy of another", "a", 0, 2),)))
    for delta, mark in ((5, 5), (6, 11), (-13, -2), (4, 2)):
        for each in (delta // 2, delta - delta // 2):
            await imports(one, each)
        assert ("", "1 marks of imports differ") in await copies(dry=True)
        for _ in range(2):
            assert await copies() == []
            assert await there() == (mark + 2, mark)
    assert await two.marks("copy of another", ["a"]) == {}
    await imports(two, 40)
    await imports(one, 1)
    assert [name for name, _ in await copies()] == ["a"]
    assert await there() == (44, 42)
    assert await copies(merge=True) == []
    assert await there() == (45, 43)


async def test_a_mark_of_a_counter_that_is_0_on_both_sides_is_not_mixed(files: Files) -> None:
    one, two = files
    for store, key in ((one, 5), (two, 7)):
        await store.apply(replace(commit(("a", 0)), marks=(Mark("redis", "a", 0, key),)))
    for _ in range(2):
        report = await copied(one, two)
        assert report.differences == [("a", "the target has imports from redis that were not copied from here")]
        assert await two.marks("redis", ["a"]) == {"a": 7}


@pytest.mark.parametrize("by_file", [False, True])
async def test_jobs_that_have_ended_are_known_there_and_those_that_run_are_differences(
    files: Files, by_file: bool, tmp_path: Path
) -> None:
    one, two = files
    later = StoreMillis(await one.now() + DAY)
    progress = Progress(3, 200, 199, 1, 2, 7, (("a", "it is full"),))
    there = JobState(Job("there", ADD, "", 1, 2, later), 0, state=DONE)
    ended = [
        JobState(Job("acme/done", ADD, "p:", 5, 123, later), 0, progress, DONE, 456),
        JobState(Job("stopped", RESET, "", 0, 124, later), 3, Progress(), FAILED, 457, "somebody stopped it"),
    ]
    await SqliteArrivals(two.database).keep([there])
    await SqliteArrivals(one.database).keep(
        [
            *ended,
            replace(there, job=there.job._replace(number=2)),
            JobState(Job("made again", EXPORT, "", 0, 1, later), 0, state=DONE),
            JobState(Job("expired", ADD, "", 5, 1, StoreMillis(1)), 0, state=DONE),
        ]
    )
    for running in (False, False, True):
        if running:
            await SqliteJobs(one.database).create(Job("runs", ADD, "", 1, 1, later))
        says = [("job runs", "the job runs in the origin: let it end, or stop it")]
        report = await copied(one, two, lines=tmp_path if by_file else None)
        assert report.differences == (says if running else [])
    kept = {state.job.id: state for state in await SqliteJobs(two.database).latest("", 10)}
    assert [*kept] == ["stopped", "there"]
    assert kept["there"] == there
    for state in ended:
        found = await SqliteJobs(two.database).get(state.job.id)
        assert found is not None
        assert abs(found.job.expires - later) <= MINUTE
        assert replace(found, open=state.open, job=found.job._replace(expires=later)) == state


async def in_lines(store: SqliteStore, folder: Path) -> Path:
    lines = folder / "one.ndjson"
    now = int(SystemClock().now() * 1_000)
    lines.write_bytes(b"".join([line async for line in written(StoreOrigin(store, "one", nothing), "", now)]))
    return lines


async def test_a_dead_letter_is_a_difference(files: Files) -> None:
    one, two = files
    await one.apply(commit(("a", 5)))
    envelope = Envelope("e", {"a": 7, "b": 7}, {}, (), 1)
    dead = with_body(Receipt(envelope.key, LATER, DEAD), envelope, "why", BrokerMillis(1))
    await one.apply(Commit((dead,), ()))
    report = await copied(one, two)
    assert report.differences == [(name, "a dead letter of it is neither replayed nor dropped") for name in "ab"]


async def test_a_dry_run_writes_nothing(files: Files) -> None:
    one, two = files
    await one.apply(adding((1, 5)))
    later = StoreMillis(await one.now() + DAY)
    await one.apply(Commit((Receipt(key_of_increment("a", "x"), later),), (), marks=(Mark("redis", "a", 0, 5),)))
    await SqliteArrivals(one.database).keep([JobState(Job("j", ADD, "", 1, 1, later), 0, state=DONE)])
    report = await copied(one, two, dry=True)
    assert report.origin == report.copied == dict.fromkeys(WHAT, 1)
    assert await two.names("", "", 10) == []
    async with two.audit_data() as data:
        assert [*await data.followed()] == []
        assert [one async for one in data.marks()] == []
        assert [one async for one in data.jobs()] == []


def test_only_receipts_that_a_client_may_meet_again_are_taken_along_and_without_sums() -> None:
    sums = {"a": 5}
    (of_key,) = notes_of_commit(["t"], "commit", Tally(3), sums)
    (minted,) = notes_of_commit([""], "commit", Tally(3), sums)
    (of_set,) = notes_of_change("commit", "a", [5], 0, 5)
    kept = {
        key_of_increment("a", "x"): (b"", b""),
        key_of_envelope("key"): (of_key, b'{"a":"t"}'),
        key_of_set("a", "set", "key"): (of_set, b'{"v":["0","5"]}'),
        key_of_envelope("minted"): (minted, None),
        "m" + "0" * 64: (minted, None),
    }
    for key, (note, after) in kept.items():
        one = moved_receipt(Receipt(key, LATER, note=note), NOW)
        assert (one and one.note) == after, key
        if one is not None:
            there = one.at(StoreMillis(7), 8)
            assert there == Receipt(key, StoreMillis(7 + DAY), note=copied_from(8, one.note))
            assert moved_receipt(there, NOW) == one._replace(left=Millis(7 + DAY - NOW))
    assert moved_receipt(Receipt(key_of_increment("a", "x"), NOW), NOW) is None
    assert moved_receipt(Receipt(key_of_increment("a", "x"), LATER, "dead"), NOW) is None


async def test_what_waits_in_the_origin_fails_it_and_a_file_of_lines_fails_the_copy_that_reads_it(
    tmp_path: Path,
) -> None:
    one, lines = tmp_path / "one.db", tmp_path / "lines.ndjson"
    await Database(one).close()
    with closing(sqlite3.connect(one)) as db, db:
        db.execute("UPDATE broker SET increments = 3")
    done, _ = await asyncio.to_thread(copy, url(one), lines)
    assert (done.code, len(done.lines)) == (0, 1)
    assert "lacks 3 increments, not applied yet" in done.lines[0]
    for origin in (url(one), lines):
        done, said = await asyncio.to_thread(copy, origin, url(tmp_path / "two.db"))
        assert (done.code, said["waiting"]) == (1, 3)
        assert "not applied in the origin: 3 increments. Stop what counts there" in done.lines[-1]
    done, said = await asyncio.to_thread(copy, url(one), url(tmp_path / "two.db"), "--dry-run")
    assert (done.code, said["waiting"]) == (0, 3)
    assert "not applied in the origin: 3 increments" in done.lines[-1]


@pytest.mark.parametrize(
    ("origin", "target", "why"),
    [
        ("redis://x", "sqlite:///two.db", "--from='redis://x': must be sqlite:///FILE"),
        ("one.db", "sqlite:///two.db", "'one.db': must be sqlite:///FILE"),
        ("sqlite:///missing.db", "sqlite:///two.db", "missing.db does not exist"),
        ("sqlite:///one.db", "sqlite:///one.db", "--from and --to are the same store"),
        ("cut.ndjson", "sqlite:///two.db", "cut.ndjson is cut off after line 2"),
        ("other.ndjson", "sqlite:///two.db", "other.ndjson is no file of countersink copy"),
        ("part.ndjson", "sqlite:///two.db", "part.ndjson is no file of countersink copy"),
        ("broken.ndjson", "sqlite:///two.db", "line 2: is no line of countersink copy"),
    ],
)
async def test_what_can_not_be_copied_is_one_line(origin: str, target: str, why: str, tmp_path: Path) -> None:
    await Database(tmp_path / "one.db").close()
    head = '{"origin": "x", "followed": [], "waiting": 0}\n'
    (tmp_path / "cut.ndjson").write_text(head + '{"name": "a", "value": 1}\n')
    (tmp_path / "broken.ndjson").write_text(head + '{"name": "a", "val\n')
    (tmp_path / "part.ndjson").write_text('{"origin": "x"}\n{"lines": 1}\n')
    (tmp_path / "other.ndjson").write_text('{"name": "a", "value": 1}\n')
    done = await asyncio.to_thread(run, "copy", "--from", origin, "--to", target, cwd=tmp_path)
    assert why in done.refusal


async def test_a_disk_that_becomes_full_ends_a_copy_in_one_line(tmp_path: Path) -> None:
    one, lines = tmp_path / "one.db", tmp_path / "full.ndjson"
    database = Database(one)
    await SqliteStore(database, SystemClock()).apply(commit(*[(f"{number:0100}", 1) for number in range(1_000)]))
    await database.close()
    lines.symlink_to("/dev/full")
    done = await asyncio.to_thread(run, "copy", "--from", url(one), "--to", str(lines), cwd=tmp_path)
    assert "full.ndjson can't be written: No space left on device" in done.refusal


KILLED: Final = """
import asyncio, os, signal, sys
from countersink_server.__main__ import main
from shared.sqlite.store import SqliteStore

right, commits = SqliteStore.apply, 0

async def apply(store, commit):
    global commits
    commits += 1
    done = asyncio.ensure_future(right(store, commit))
    if commits == 5:
        await asyncio.sleep({pause})
        os.kill(os.getpid(), signal.{number})
    return await done

SqliteStore.apply = apply
sys.argv = {arguments}
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, and in the background of a shell, they are ignored
signal.signal(signal.SIGINT, signal.{interrupt})
main()
"""
"""A command that gets a signal while its fifth commit is made, or just after it."""


async def test_killed_again_and_again_everything_is_there_once(tmp_path: Path) -> None:
    number = 3_000
    one, _, *databases = await two_files(tmp_path)
    for begin in range(0, number, 300):
        adds = [(f"c{each}", each + 1) for each in range(begin, begin + 300)]
        keys = tuple(key_of_increment("c", f"{each}") for each in range(begin, begin + 300))
        await one.apply(commit(*adds, keys=keys))
    for each in databases:
        await each.close()
    arguments = ["", "copy", "--from", url(tmp_path / "one.db"), "--to", url(tmp_path / "two.db")]
    for pause in (0, 0.001, 0.01):
        script = KILLED.format(number="SIGKILL", interrupt="SIG_IGN", pause=pause, arguments=arguments)
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        assert await killed.wait() == -signal.SIGKILL
    done, said = await asyncio.to_thread(copy, url(tmp_path / "one.db"), url(tmp_path / "two.db"))
    assert (done.code, said["differences"]) == (0, 0)
    assert 0 < said["copied"]["receipts"] <= said["origin"]["receipts"] == number
    with closing(sqlite3.connect(tmp_path / "two.db")) as db:
        totals = dict(db.execute("SELECT counter, sum(count) FROM shards GROUP BY counter"))
    assert totals == {f"c{each}": each + 1 for each in range(number)}


@pytest.mark.parametrize(
    ("number", "interrupt"),
    [
        (signal.SIGTERM, "default_int_handler"),
        (signal.SIGTERM, "SIG_IGN"),
        (signal.SIGHUP, "default_int_handler"),
        (signal.SIGINT, "default_int_handler"),
    ],
)
async def test_ended_by_a_signal_it_says_nothing_and_leaves_no_copy_of_the_origin(
    tmp_path: Path, number: signal.Signals, interrupt: str
) -> None:
    one, _, *databases = await two_files(tmp_path)
    for begin in range(0, 3_000, 300):
        await one.apply(commit(*((f"c{each}", each + 1) for each in range(begin, begin + 300))))
    for each in databases:
        await each.close()
    (temporary := tmp_path / "temporary").mkdir()
    arguments = ["", "copy", "--from", url(tmp_path / "one.db"), "--to", url(tmp_path / "two.db")]
    script = KILLED.format(number=number.name, interrupt=interrupt, pause=0, arguments=arguments)
    environment = os.environ | {"TMPDIR": str(temporary)}
    ended = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, said = await ended.communicate()
    assert said == b""
    assert ended.returncode == 128 + number
    assert not list(temporary.iterdir())
