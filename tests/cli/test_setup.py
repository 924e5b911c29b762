"""provision, doctor and sweep on a SQLite file, and what doctor says of disks."""

import json
import sqlite3
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from countersink_server.cli import setup as commands
from shared.config.findings import FAIL, OK, WARN, of_clock, too_long
from shared.config.settings import Settings
from shared.model.buckets import Millis, StoreMillis
from shared.model.jobs import Job
from shared.model.receipts import lifetime
from shared.runtime.clock import SystemClock
from shared.sqlite import setup
from shared.sqlite.database import Database
from shared.sqlite.jobs import SqliteJobs
from shared.sqlite.schema import newest
from shared.sqlite.setup import SqliteSetup, of_file_system, of_free
from shared.wiring.doctor import setups
from tests.cli.running import Done, environment, make_file, run

HOUR = 3_600_000
LONGEST = lifetime(Millis(Settings().retention * 1_000), of_client=True)


def doctor(folder: Path, **settings: str) -> Done:
    return run("doctor", cwd=folder, **settings)


def made(folder: Path) -> Path:
    """A file as the first start leaves it."""
    make_file(folder)
    return folder / ".countersink" / "countersink.db"


def expired(file: Path, count: int) -> None:
    now = 2**40
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("UPDATE store SET now = ?", (now,))
        rows = [(f"r{number}", now - HOUR, "applied", 1) for number in range(count)]
        rows += [("young", now + HOUR, "applied", 1), ("new", now + LONGEST, "applied", 1)]
        db.executemany("INSERT INTO receipts (key, expires, state, time) VALUES (?, ?, ?, ?)", rows)
        db.execute("COMMIT")


def kept(file: Path) -> list[str]:
    """The keys of all receipts."""
    with closing(sqlite3.connect(file)) as db:
        return [key for (key,) in db.execute("SELECT key FROM receipts ORDER BY key")]


def marks(done: Done, mark: str) -> list[str]:
    return [line for line in done.out.splitlines() if line.startswith(mark)]


def test_with_a_file_there_is_nothing_to_provision(tmp_path: Path) -> None:
    assert "nothing to do" in run("provision", cwd=tmp_path).said
    assert not (tmp_path / ".countersink").exists()


@pytest.mark.parametrize(
    ("to", "secret", "said"),
    [
        ("http://example.com/hook", "", "COUNTERSINK_FEED_TO: must be https://HOST/PATH"),
        ("https://example.com/hook", "abc", "COUNTERSINK_FEED_SECRET: must be whsec_"),
        ("file:///nowhere/at-all/events", "", "COUNTERSINK_FEED_TO: make the folder /nowhere/at-all"),
    ],
)
def test_a_feed_that_can_not_tell_is_refused_before_up_says_that_it_is_up(
    tmp_path: Path, to: str, secret: str, said: str
) -> None:
    feed = {"COUNTERSINK_FEED": "=1s", "COUNTERSINK_FEED_TO": to, "COUNTERSINK_FEED_SECRET": secret}
    feed = {name: value for name, value in feed.items() if value}
    code, out, lines = run("up", "--port", "0", cwd=tmp_path, **feed)
    assert (code, out) == (1, "")
    assert said in lines[-1]
    checked = doctor(tmp_path, **feed)
    assert checked.code == 1
    assert any(said in line for line in marks(checked, FAIL))


def test_doctor_makes_no_file(tmp_path: Path) -> None:
    done = doctor(tmp_path)
    assert "does not exist yet" in done.said
    assert marks(done, FAIL) == []
    assert not list(tmp_path.iterdir())


def test_doctor_finds_a_healthy_file_healthy(tmp_path: Path) -> None:
    file = made(tmp_path)
    done = doctor(tmp_path)
    assert (done.code, done.lines, marks(done, FAIL)) == (0, [], [])
    said = [line.removeprefix(f"ok    file      {file}: ") for line in marks(done, "ok    file")]
    before = file.stat()
    assert doctor(tmp_path).code == 0
    assert (before.st_mtime_ns, before.st_size) == (file.stat().st_mtime_ns, file.stat().st_size), "it changes nothing"
    assert said == [
        f"a file of Countersink, schema {newest()}",
        "keeps a write-ahead log",
        "is sound",
        "can be written",
    ]


def damage(folder: Path) -> None:
    file = made(folder)
    expired(file, 2_000)
    with file.open("r+b") as data:
        data.seek(4_096 * 20)
        data.write(b"\xff" * 4_096 * 3)


def of_another_program(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "x.db")) as db:
        db.execute("CREATE TABLE theirs (x)")


def no_database(folder: Path) -> None:
    (folder / "x.db").write_bytes(b"not a database, but long enough to have a header of that length" * 20)


X = {"COUNTERSINK_BROKER": "sqlite:///x.db"}
NOWHERE = {"COUNTERSINK_BROKER": "sqlite:////proc/countersink/x.db"}
"""Not even root can write there."""


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (None, {"COUNTERSINK_SHARDS": "none"}, "FAIL  settings  COUNTERSINK_SHARDS='none': must be a whole number"),
        (None, {"COUNTERSINK_STORE": "datastore://p"}, "with a SQLite broker it must be the same file"),
        (None, NOWHERE, "can't be written"),
        (damage, {}, "put a backup in its place"),
        (of_another_program, X, "database of another program"),
        (no_database, X, "file is not a database"),
    ],
)
def test_doctor_finds_what_is_wrong(
    tmp_path: Path, make: Callable[[Path], None] | None, settings: dict[str, str], said: str
) -> None:
    if make is not None:
        make(tmp_path)
    file = tmp_path / "x.db"
    before = file.read_bytes() if file.exists() else None
    done = doctor(tmp_path, **settings)
    assert done.code == 1
    failed = marks(done, FAIL)
    assert any(said in line for line in failed), done.out
    (last,) = done.lines
    assert last.startswith(f"countersink: {len(failed)} of {len(done.out.splitlines())} checks failed")
    assert (file.read_bytes() if file.exists() else None) == before


def test_kinds_that_are_one_are_refused(tmp_path: Path) -> None:
    """A config and a guard are called by the counter's name, both."""
    cloud = {"COUNTERSINK_BROKER": "pubsub://p/topic?subscription=sub", "COUNTERSINK_STORE": "datastore://p"}
    line = run("sweep", cwd=tmp_path, **cloud, COUNTERSINK_KIND_CONFIG="CountersinkGuard").refusal
    assert line.startswith("countersink: COUNTERSINK_KIND_CONFIG='CountersinkGuard'")
    assert "must differ from each other" in line


def test_doctor_finds_a_newer_file_and_one_without_a_log(tmp_path: Path) -> None:
    file = made(tmp_path)
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("PRAGMA journal_mode = DELETE")
    done = doctor(tmp_path)
    assert done.code == 1
    assert "has schema 99, and this Countersink knows" in marks(done, FAIL)[0]
    assert "its journal mode is 'delete'" in "".join(marks(done, WARN))


def test_doctor_finds_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    file = made(tmp_path)
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None)) as db:
        found = setup._can_write(db, file)
    assert found.mark == FAIL
    assert "change its permissions" in found.said


async def test_a_file_too_large_to_read_in_time_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)
    expired(file, 2_000)
    monkeypatch.setattr(setup, "LONGEST_CHECK", -1.0)
    monkeypatch.setattr(setup, "STEPS", 1)
    found = [finding async for finding in SqliteSetup(file, 2**26).findings()]
    assert any(finding.mark == WARN and "quick_check on it later" in finding.said for finding in found)
    assert not [finding for finding in found if finding.mark == FAIL]


def test_a_sweep_deletes_all_that_have_expired_and_says_how_many(tmp_path: Path) -> None:
    file = made(tmp_path)
    expired(file, 2_500)
    assert run("sweep", cwd=tmp_path).said == "2,500 expired receipts deleted\n"
    assert run("sweep", cwd=tmp_path).said == "0 expired receipts deleted\n"
    assert kept(file) == ["new", "young"]


async def test_a_sweep_forgets_jobs_of_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)
    expired(file, 1)
    database = Database(file)
    jobs = SqliteJobs(database)
    for number, expires in enumerate((1_000, 2**42)):
        await jobs.create(Job(f"j{number}", "add", "", 1, 0, StoreMillis(expires)))
    monkeypatch.chdir(tmp_path)
    await commands._sweep(Namespace(data=None, json=False))
    assert [await jobs.get(f"j{number}") is None for number in range(2)] == [True, False]
    await database.close()


async def test_a_sweep_by_a_clock_that_is_ahead_keeps_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)
    expired(file, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SystemClock, "now", lambda _: time.time() + 30 * 24 * HOUR / 1_000)
    await commands._sweep(Namespace(data=None, json=False))
    assert kept(file) == ["new", "young"]


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/vda rw
2 1 0:1 / /srv rw - nfs4 server:/x rw
3 1 0:2 / /srv/fast rw - tmpfs tmpfs rw
4 1 0:3 / /shared rw - 9p host rw
5 1 0:4 / /with\\040space rw - cifs a rw
"""


@pytest.mark.parametrize(
    ("folder", "mark", "part"),
    [
        ("/var/lib", OK, "local file system (ext4)"), ("/srv/x", FAIL, "network file system (nfs4): choose another"),
        ("/srvx", OK, "ext4"), ("/srv/fast/x", WARN, "in memory (tmpfs)"), ("/shared", WARN, "may be shared"),
        ("/with space/x", FAIL, "network file system (cifs)"),
    ],
)  # fmt: skip
def test_which_file_system_it_is(folder: str, mark: str, part: str) -> None:
    found = of_file_system(Path(folder), MOUNTS)
    assert found.mark == mark
    assert part in found.said


def test_where_it_can_not_be_told_that_is_said() -> None:
    assert of_file_system(Path("/x"), "").mark == WARN


async def test_the_disk_of_the_spool_is_looked_at(tmp_path: Path) -> None:
    settings = Settings(
        broker="pubsub://p/t?subscription=s",
        store="datastore://p",
        spool=str(tmp_path / "spool.db"),
        disk_reserve=2**40,
    )
    async with setups(settings)[2]() as spool:
        found = [finding async for finding in spool.findings()]
    assert {finding.part for finding in found} == {"spool"}
    assert [finding.said.partition(":")[0] for finding in found[:2]] == [str(tmp_path)] * 2
    assert len(setups(replace(settings, spool="off"))) == len(setups(settings)) - 1


def test_how_much_is_free() -> None:
    assert [of_free(Path("/x"), size, 2**26).mark for size in (2**31, 2**29, 2**20)] == [OK, WARN, FAIL]


@pytest.mark.parametrize(
    ("ahead", "mark", "part"),
    [
        (0.0, OK, "within 5 s"), (-4.0, OK, "within 5 s"), (30.0, WARN, "30 s ahead of"),
        (-30.0, WARN, "30 s behind"), (-3_600.0, FAIL, "3600 s behind the server's: set it with NTP"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_clock(ahead: float, mark: str, part: str) -> None:
    found = of_clock("clock", ahead)
    assert (found.mark, part in found.said) == (mark, True)


def test_receipts_outlive_what_they_stand_for() -> None:
    assert too_long("s", 604_800, 604_800) is None
    assert "set COUNTERSINK_RETENTION=604800" in str(too_long("s", 604_800, 86_400))


HIDDEN = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
sys.modules["google.pubsub_v1"] = sys.modules["google.cloud.datastore_v1"] = None
from countersink_server.cli.main import main
for command in sys.argv[1:]:
    code = 0
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        try:
            main(command.split())
        except SystemExit as end:
            code = end.code
    said = [code] if isinstance(code, str) else errors.getvalue().splitlines()
    print(json.dumps([1 if said else code, out.getvalue(), said]))
"""
"""Imports everything once for all commands."""


def hidden(folder: Path, *commands: str, **settings: str) -> list[Done]:
    """Where the packages of the extra are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *commands],
        cwd=folder,
        env=environment(**settings),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("broker", "says"),
    [
        ("pubsub://p/topic?subscription=sub", "needs more packages: install Countersink with its extra 'google'"),
        ("sqlite:///x.db", "with a SQLite broker it must be the same file"),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, broker: str, says: str) -> None:
    commands = ("doctor", "ingest --port 0", "flusher", "up --port 0", "provision", "sweep", "audit")
    doctor, *others = hidden(tmp_path, *commands, COUNTERSINK_BROKER=broker, COUNTERSINK_STORE="datastore://p")
    assert says in doctor.out
    for done in (doctor, *others):
        assert (done.code, len(done.lines)) == (1, 1)
        assert done is doctor or says in done.lines[0]


def test_a_file_needs_no_extra(tmp_path: Path) -> None:
    make_file(tmp_path)
    assert [done.code for done in hidden(tmp_path, "provision", "sweep", "doctor")] == [0, 0, 0]


@pytest.mark.parametrize("command", ["ingest", "flusher", "provision", "sweep", "doctor"])
def test_without_credentials_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Of doctor, one for each server."""
    for emulator in ("PUBSUB_EMULATOR_HOST", "DATASTORE_EMULATOR_HOST"):
        monkeypatch.delenv(emulator, raising=False)
    cloud = {"COUNTERSINK_BROKER": "pubsub://p/topic?subscription=sub", "COUNTERSINK_STORE": "datastore://p"}
    nobody = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    port = ("--port", "0") if command == "ingest" else ()
    code, out, (line,) = run(command, *port, cwd=tmp_path, **cloud, **nobody)
    assert code == 1
    if command == "doctor":
        failed = [one for one in out.splitlines() if one.startswith(FAIL)]
        assert ["Pub/Sub" in one for one in failed] == [True, False]
        assert ["Datastore" in one for one in failed] == [False, True]
        assert all("none.json was not found" in one for one in failed)
    else:
        assert "none.json was not found" in line


def test_what_is_found_made_and_deleted_is_told_as_json(tmp_path: Path) -> None:
    made = run("provision", "--json", cwd=tmp_path, COUNTERSINK_EXISTING="yes")
    found = run("doctor", "--json", cwd=tmp_path)
    lines = [json.loads(line) for line in [*made.out.splitlines(), *found.out.splitlines()]]
    assert len(lines) > 2
    assert all(line.keys() == {"part", "mark", "said"} for line in lines)
    assert {line["mark"] for line in lines} <= {"ok", "warn", "fail"}
    assert json.loads(run("sweep", "--json", cwd=tmp_path).out) == {"deleted": 0}
