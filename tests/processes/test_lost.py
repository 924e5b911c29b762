"""A data file that is gone, empty or another one: no start takes an empty file for it, and processes that have it open
notice it and end, whether they write or only read.
"""

import asyncio
import contextlib
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from shared.sqlite.data_file import BETWEEN_CHECKS
from tests.cli.running import Done, run
from tests.processes.harness import Processes, Running, count, processes, value

PATIENCE = 120.0
CLIENTS = 8
ENOUGH = 50
"""Increments that are accepted before the file goes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mount point, as it were."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
async def started(tmp_path: Path, folder: Path) -> AsyncIterator[Processes]:
    state = tmp_path / "state"
    settings = {"XDG_STATE_HOME": str(state), "COUNTERSINK_FLUSH_INTERVAL": "0.05"}
    async with processes(folder, tmp_path / "log", **settings) as started:
        yield started


async def found(started: Processes, **settings: str) -> tuple[int, bool]:
    """The value that a start finds, and whether it is exact."""
    return await value((await started.start("up", "--port", "0", **settings)).url)


async def counted(started: Processes, number: int, *, ends: int = signal.SIGTERM) -> None:
    running = await started.start("up", "--port", "0")
    await count(running.url, number, query="?wait=applied")
    await running.end(ends)


async def refusal(started: Processes, *arguments: str, **settings: str) -> str:
    """The line that it ends with."""
    log = started.log
    assert log is not None
    with pytest.raises(AssertionError, match="ended with 1"):
        await started.start(*(arguments or ("flusher",)), **settings)
    return log.read_text().splitlines()[-1]


def command(started: Processes, *arguments: str, **settings: str) -> Done:
    names = ("COUNTERSINK_BROKER", "XDG_STATE_HOME")
    return run(*arguments, cwd=None, **({name: started.environment[name] for name in names} | settings))


def doctor(started: Processes, *arguments: str, **settings: str) -> tuple[int, str]:
    done = command(started, "doctor", *arguments, **settings)
    return done.code, done.out + "\n".join(done.lines)


def move(folder: Path, to: Path) -> None:
    """All but the lock file."""
    to.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if not file.name.endswith("-turn"):
            file.rename(to / file.name)


def swapped(folder: Path) -> None:
    """The volume is unmounted."""
    folder.rename(folder.with_name("volume"))
    folder.mkdir()


def swapped_back(folder: Path) -> None:
    folder.rmdir()  # nobody put anything there
    folder.with_name("volume").rename(folder)


def without_log(folder: Path) -> None:
    (folder / "countersink.db-wal").rename(folder.with_name("away"))
    (folder / "countersink.db-shm").unlink()


def entries(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_file_that_was_removed_is_not_replaced_by_an_empty_one(
    started: Processes, folder: Path, how: int
) -> None:
    """With its log, if there is one; the lock file beside it says enough."""
    await counted(started, 3, ends=how)
    move(folder, folder.with_name("away"))
    for _ in range(2):  # a supervisor starts it again and again
        line = await refusal(started, XDG_STATE_HOME="relative paths do not count")
        assert f"{folder}/countersink.db is gone" in line
        assert "doctor --trust-file" in line
    assert entries(folder) == ["countersink.db-turn"]
    move(folder.with_name("away"), folder)
    assert await found(started) == (3, True)


async def test_a_volume_that_is_not_mounted_is_not_an_empty_one(started: Processes, folder: Path) -> None:
    await counted(started, 3)
    swapped(folder)
    assert "Is its volume mounted?" in await refusal(started)
    code, said = doctor(started)
    assert code == 1
    assert "FAIL  file      " in said
    swapped_back(folder)
    assert await found(started) == (3, True)


async def test_an_older_copy_is_refused_until_somebody_says_that_it_is_meant(started: Processes, folder: Path) -> None:
    file, copy = folder / "countersink.db", folder.with_name("copy.db")
    await counted(started, 2)
    with contextlib.closing(sqlite3.connect(file)) as db, contextlib.closing(sqlite3.connect(copy)) as to:
        db.backup(to)
    await counted(started, 3)
    shutil.copy(copy, file)
    line = await refusal(started)
    assert f"{file} is an older copy of the file that was here before" in line
    code, said = doctor(started)
    assert code == 1
    assert line.removeprefix("countersink: ") in said
    code, said = doctor(started, "--trust-file")
    assert code == 0, said
    assert await found(started) == (2, True)


async def test_the_log_of_another_file_is_never_taken_into_a_backup(started: Processes, folder: Path) -> None:
    """Killed, the file leaves its log behind. SQLite would put its pages into whatever file is there."""
    file, copy = folder / "countersink.db", folder.with_name("copy.db")
    await counted(started, 2)
    shutil.copy(file, copy)
    await counted(started, 30)
    await counted(started, 3, ends=signal.SIGKILL)
    shutil.copy(copy, file)
    assert "an older copy" in await refusal(started)
    code, said = doctor(started, "--trust-file")
    assert (code, "move it away" in said) == (1, True), said
    assert file.read_bytes() == copy.read_bytes()
    without_log(folder)
    code, said = doctor(started, "--trust-file")
    assert code == 0, said
    assert await found(started) == (2, True)


async def test_to_begin_anew_takes_one_command(started: Processes, folder: Path) -> None:
    await counted(started, 3)
    shutil.rmtree(folder)
    assert "is gone" in await refusal(started)
    code, said = doctor(started, "--trust-file")
    assert (code, "the first start makes it" in said) == (0, True), said
    assert await found(started) == (0, True)


async def test_another_file_is_refused(started: Processes, folder: Path) -> None:
    await counted(started, 3)
    move(folder, folder.with_name("away"))
    await counted_elsewhere(started, folder)
    assert "is not the file that was here before" in await refusal(started)


async def counted_elsewhere(started: Processes, folder: Path) -> None:
    other = folder.with_name("other")
    running = await started.start("flusher", COUNTERSINK_BROKER=f"sqlite:///{other}/countersink.db")
    await running.end(signal.SIGTERM)
    (other / "countersink.db").rename(folder / "countersink.db")


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("ingest", "removed"),
        ("ingest", "replaced"),
        ("flusher", "removed"),
        ("flusher", "replaced"),
        ("workers", "removed"),
    ],
)
async def test_a_process_that_only_reads_notices_it_and_ends(
    started: Processes, folder: Path, part: str, how: str
) -> None:
    """No request comes that would write."""
    file = folder / "countersink.db"
    await counted(started, 3)
    arguments = {
        "ingest": ("ingest", "--port", "0"),
        "workers": ("ingest", "--port", "0", "--workers", "2"),
        "flusher": ("flusher",),
    }[part]
    running = await started.start(*arguments)
    file.rename(folder / "away")
    if how == "replaced":
        shutil.copy(folder / "away", file)
    if part == "ingest":
        await asyncio.sleep(BETWEEN_CHECKS)  # reads look so often
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"{running.url}/v1/counters/a") as response:
                    assert response.status == 503, await response.text()
            except aiohttp.ClientError:
                pass  # it has ended
    assert await asyncio.wait_for(running.process.wait(), PATIENCE) == 1
    assert started.log is not None
    last = started.log.read_text().splitlines()[-1]
    assert last.startswith(f"countersink: {file} ")
    assert "was removed or replaced" in last or "is gone" in last


async def test_with_the_setting_no_start_makes_a_file(started: Processes, folder: Path) -> None:
    """For containers, where nothing else survives."""
    must = {"COUNTERSINK_EXISTING": "yes"}
    for arguments in (("ingest", "--workers", "2"), ("ingest", "--workers", "1"), ("flusher",)):
        line = await refusal(started, *arguments, **must)
        assert f"{folder}/countersink.db does not exist. Is the path right" in line
        assert "`countersink provision` makes a new one" in line
    assert "`countersink provision`" in doctor(started, **must)[1]
    assert entries(folder) == []
    done = command(started, "provision", **must)
    assert (done.code, done.out) == (0, f"{folder}/countersink.db: made\n")
    assert await found(started, **must) == (0, True)


@pytest.mark.parametrize(
    "command",
    [
        ["audit"],
        ["sweep"],
        ["dlq", "list"],
        ["map", "--prefix", "p", "--export", "-"],
        ["import", "--variant", "go", "--from", "datastore://p"],
    ],
    ids=" ".join,
)
def test_no_command_makes_a_file(tmp_path: Path, command: list[str]) -> None:
    done = run(*command, cwd=tmp_path, COUNTERSINK_BROKER=f"sqlite:///{tmp_path}/data/countersink.db")
    assert done.code == 1
    assert "countersink.db does not exist" in done.lines[-1]
    assert [*tmp_path.iterdir()] == []


async def accepted_until_it_ends(running: Running, take_away: asyncio.Event) -> int:
    """Every answer but 202 says what has happened."""
    accepted = 0

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal accepted
        while running.process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with session.post(f"{running.url}/v1/counters/a") as response:
                    said = await response.text()
                if response.status != 202:
                    assert response.status == 503
                    assert "the service's log says more" in said
                accepted += response.status == 202
            if accepted >= ENOUGH:
                take_away.set()
            await asyncio.sleep(0.005)

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client(session))
    return accepted


async def without(started: Processes, file: Path) -> int:
    """One life until the file is gone; how much was accepted in it."""
    running = await started.start("up", "--port", "0")
    take_away = asyncio.Event()
    clients = asyncio.create_task(accepted_until_it_ends(running, take_away))
    await take_away.wait()
    await asyncio.to_thread(file.rename, f"{file}.away")
    assert await asyncio.wait_for(running.process.wait(), 60) == 1
    return await clients


@pytest.mark.parametrize("companion", ["", "-wal"])
async def test_a_file_taken_away_ends_the_process_with_a_line(tmp_path: Path, companion: str) -> None:
    """The log was removed from its folder. At the end, its content is written to the file."""
    log, file = tmp_path / "log", tmp_path / f"countersink.db{companion}"
    async with processes(tmp_path, log, COUNTERSINK_FLUSH_INTERVAL="60") as started:
        accepted = await without(started, file)
        assert log.read_text().splitlines()[-1].startswith(f"countersink: {file} was removed or replaced")
        if companion:
            assert await found(started) == (accepted, True)
