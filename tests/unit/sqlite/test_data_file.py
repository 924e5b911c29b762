"""A data file that was lost or replaced is noticed; it has one name and one log; commits reach the disk."""

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from shared.config.findings import FAIL
from shared.model.errors import DamagedError, LostFileError, SettingsError
from shared.model.words import Message
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, claim, topic_of
from shared.sqlite.data_file import (
    IN_USE,
    DataFile,
    Log,
    Sighting,
    folder_elsewhere,
    real,
    sighting_of,
    sighting_without_log,
    to_disk,
    why_unsafe,
)
from shared.sqlite.database import Database, connect_to
from shared.sqlite.setup import SqliteSetup

MESSAGE = Message(b'{"counter":"a"}')


async def written(path: Path, elsewhere: Path | None, number: int = 1, topic: str = "") -> None:
    """By one process."""
    database = Database(path, elsewhere)
    if topic:
        claim(database, topic)
    publisher = SqlitePublisher(database, SystemClock(), 10**6)
    for _ in range(number):
        await publisher.publish([MESSAGE])
    await database.close()


def companion(path: Path, what: str) -> Path:
    return Path(f"{path}-{what}")


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def locked(path: Path) -> bool:
    """By anybody, as far as the kernel tells."""
    locks = Path("/proc/locks")
    if not locks.exists():
        return True
    lines = [line for line in locks.read_text().splitlines() if f":{path.stat().st_ino} " in line]
    return any("POSIX" in line for line in lines)


def known(state: Path) -> Sighting:
    (file,) = state.glob("*.json")  # not what the writer is about to rename
    said = json.loads(file.read_text())
    return Sighting(said["id"], said["progress"])


async def test_what_is_remembered_stands_in_the_file_without_its_log(tmp_path: Path) -> None:
    path, state = tmp_path / "data.db", tmp_path / "state"
    await written(path, state, 5)
    first = known(state)
    assert sighting_without_log(path) == first
    await written(path, state, 5)
    assert known(state).id == first.id
    assert known(state).progress > first.progress
    database = Database(path, state)  # nothing is written, so nothing new is noted
    await database.close()
    assert sighting_without_log(path) == known(state)


async def test_a_commit_is_noted_while_the_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.sqlite.data_file.REMEMBER", 0.0)
    path, state = tmp_path / "data.db", tmp_path / "state"
    database = Database(path, state)
    publisher = SqlitePublisher(database, SystemClock(), 10**6)
    await publisher.publish([MESSAGE])
    async with asyncio.timeout(60):
        while not state.exists() or not [*state.glob("*.json")]:
            await asyncio.sleep(0.01)
        before = known(state)
        while known(state).progress <= before.progress:
            await publisher.publish([MESSAGE])
    await database.close()


async def test_a_second_database_of_a_process_leaves_the_locks_alone(tmp_path: Path) -> None:
    """To read the file without its log would drop them."""
    path, state = tmp_path / "data.db", tmp_path / "state"
    await written(path, state)
    first = Database(path, state)
    identity = (path.stat().st_dev, path.stat().st_ino)
    assert IN_USE[identity] == 1
    second = Database(path, state)
    assert locked(path)
    await second.close()
    await first.close()
    assert not IN_USE[identity]


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("spool", ["", "projects/p/topics/t"])
async def test_what_a_start_refuses(tmp_path: Path, beside: bool, spool: str) -> None:
    """By what is beside the file alone, or by what is elsewhere alone; a spool is a file like others."""
    path, state = tmp_path / "data" / "file.db", tmp_path / "state"
    where = None if beside else state
    await written(path, state, 2, spool)
    old = path.read_bytes()
    await written(path, state, 2, spool)
    new = path.read_bytes()
    await written(tmp_path / "other", None, 9, spool)
    if not beside:
        companion(path, "turn").unlink()
    files: Mapping[str, bytes | None] = {
        "is gone": None,
        "is empty": b"",
        "is an older copy": old,
        "is not the file": (tmp_path / "other").read_bytes(),
    }
    for said, there in files.items():
        path.unlink(missing_ok=True)
        if there is not None:
            fill(path, there)
        with pytest.raises(LostFileError, match=said):
            Database(path, where)
        assert content(path) == there, "it is left as it was"
    path.write_bytes(new)
    await Database(path, where).close()


async def test_a_log_without_its_file_is_not_thrown_away(tmp_path: Path) -> None:
    """SQLite would."""
    path = tmp_path / "file.db"
    left = b"something"
    fill(companion(path, "wal"), left)
    with pytest.raises(LostFileError, match="is not empty"):
        Database(path)
    with pytest.raises(LostFileError, match="move it away"):
        DataFile(path).trust()
    assert content(companion(path, "wal")) == left


async def test_a_first_start_that_was_killed_is_a_first_start(tmp_path: Path) -> None:
    """The file was made, and the lock, and nothing in them."""
    path = tmp_path / "file.db"
    fill(path, b"")
    fill(companion(path, "turn"), b"")
    await written(path, tmp_path / "state")


@pytest.mark.parametrize("rubbish", [b"\0" * 100, b"{", b'{"id": 1}', b"[]", b'{"id": "x", "progress": null}'])
async def test_what_can_not_be_read_says_nothing(tmp_path: Path, rubbish: bytes) -> None:
    """A power failure may leave anything."""
    path = tmp_path / "file.db"
    await written(path, None)
    fill(companion(path, "turn"), rubbish)
    await written(path, None)
    assert DataFile(path).flaw() is None


async def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "no folder").touch()
    await written(tmp_path / "file.db", tmp_path / "no folder" / "state")


def test_the_place_elsewhere_is_that_of_the_user() -> None:
    assert folder_elsewhere({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/countersink/files")
    assert folder_elsewhere({"HOME": "/h"}) == Path("/h/.local/state/countersink/files")
    assert folder_elsewhere({"XDG_STATE_HOME": "not absolute", "HOME": "/h"}) is None
    assert folder_elsewhere({}) is None


async def test_a_process_that_must_not_make_the_file_does_not(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        Database(tmp_path / "data" / "file.db", makes=False)
    assert content(tmp_path / "data") is None


async def look_on(overlay: SqliteOverlay) -> None:
    """It looks at the files every few milliseconds."""
    async with asyncio.timeout(60):
        while True:
            await overlay.view(["a"])
            await asyncio.sleep(0)


async def test_a_look_at_what_is_pending_notices_that_the_file_is_gone(tmp_path: Path) -> None:
    """A process that only reads it looks at that for each answer."""
    database = Database(tmp_path / "file.db")
    overlay = SqliteOverlay(database, topic_of(database))
    assert (await overlay.view(["a"]))["a"].exact
    shutil.move(tmp_path / "file.db", tmp_path / "away")
    with pytest.raises(DamagedError, match="was removed or replaced"):
        await look_on(overlay)
    with pytest.raises(DamagedError, match="was removed or replaced"):
        await overlay.view(["a"])
    await database.close()


async def test_an_id_is_made_with_the_file(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        await written(tmp_path / name, None, topic="the same")
        with closing(sqlite3.connect(tmp_path / name)) as db:
            ids.add(sighting_of(db).id)
    assert len(ids) == 2
    assert all(len(one) == 32 for one in ids)


async def test_every_connection_syncs_to_the_disk_itself(tmp_path: Path) -> None:
    """On macOS an fsync alone leaves it in the drive's cache."""
    database = Database(tmp_path / "file.db")
    with closing(connect_to(tmp_path / "other.db")) as other:
        for db in (database._db, database.reader(), other):
            values = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS]
            assert values == [2, 1, 1]
    await database.close()


PRAGMAS = ("synchronous", "fullfsync", "checkpoint_fullfsync")


@pytest.mark.parametrize(("platform", "called"), [("linux", "fdatasync"), ("darwin", "fullfsync")])
def test_a_log_is_synced_to_the_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, called: str
) -> None:
    """Python has no fdatasync on macOS."""
    calls = []
    monkeypatch.setattr("shared.sqlite.data_file.sys.platform", platform)
    monkeypatch.setattr("shared.sqlite.data_file.os.fdatasync", lambda _: calls.append("fdatasync"))
    monkeypatch.setattr("shared.sqlite.data_file.fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("shared.sqlite.data_file.fcntl.fcntl", lambda _, what: calls.append({51: "fullfsync"}[what]))
    (tmp_path / "file-wal").write_bytes(b"x")
    log = Log(tmp_path / "file")
    log.inherit()
    assert calls == [called]
    file = os.open(tmp_path / "file-wal", os.O_RDWR)
    to_disk(file)
    os.close(file)
    assert calls == [called] * 2


@pytest.mark.parametrize("name", ["//two slashes", "a?b#c%20", "\udcff not UTF-8"])
async def test_a_path_may_have_any_characters(tmp_path: Path, name: str) -> None:
    folder = Path(f"/{tmp_path}/{name}") if name.startswith("//") else tmp_path / name
    path = folder / "file.db"
    if name.isprintable():  # SQLite itself takes no others
        await written(path, tmp_path / "state")
        await written(path, tmp_path / "state")
        assert sighting_without_log(path) == known(tmp_path / "state")
    assert DataFile(path, tmp_path / "state").flaw() is None


MOUNTED = "36 35 8:1 /files/c.db {} rw,noatime master:1 - ext4 /dev/sda1 rw\n35 1 8:1 / / rw - ext4 /dev/sda1 rw\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    folder.mkdir()
    return folder / "c.db"


async def test_two_hard_links_are_refused_by_either_name_and_one_is_not(file: Path, tmp_path: Path) -> None:
    """Each would have a log of its own, and what one process commits the other one would write over."""
    await written(file, None)
    other = tmp_path / "copy.db"
    os.link(file, other)
    for name in (file, other):
        with pytest.raises(SettingsError, match=r"has 2 names \(hard links\)") as caught:
            Database(name)
        assert "\n" not in str(caught.value)
        assert str(name) in str(caught.value)
        (flaw,) = [one.said for one in [f async for f in SqliteSetup(name, 0).findings()] if one.mark == FAIL]
        assert flaw == str(caught.value)
    assert not companion(other, "turn").exists()
    other.unlink()
    await written(file, None)


async def test_a_file_that_is_mounted_by_itself_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(file, None)
    at = str(file).replace(" ", "\\040")
    assert why_unsafe(file, MOUNTED.format(file.parent)) is None
    assert why_unsafe(file, "") is None
    assert why_unsafe(file, "rubbish\n") is None
    monkeypatch.setattr("shared.sqlite.data_file.mounts", lambda: MOUNTED.format(at))
    with pytest.raises(SettingsError, match="mount its folder instead"):
        Database(file)


@pytest.mark.parametrize("made", [True, False])
async def test_a_link_leads_to_the_file_and_to_its_log(file: Path, tmp_path: Path, *, made: bool) -> None:
    if made:
        await written(file, None)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    both = [Database(link), Database(file)]
    for database in both:
        assert database.path == file
    for database in both:
        await database.write(lambda db: db.execute("UPDATE store SET time = time + 1"))
    for database in both:
        assert database.reader().execute("SELECT time FROM store").fetchone() == (2,)
    for database in both:
        await database.close()
    assert [name for name in os.listdir(tmp_path) if name.startswith("link")] == ["link.db"]  # noqa: PTH208 (short)
    assert not [one async for one in SqliteSetup(link, 0).findings() if one.mark == FAIL]


async def test_what_a_link_led_to_is_missed_by_each_of_its_names(file: Path, tmp_path: Path) -> None:
    link, state = tmp_path / "link.db", tmp_path / "state"
    link.symlink_to(file)
    await written(link, state)
    for path in file.parent.iterdir():
        path.unlink()
    with pytest.raises(LostFileError, match="is gone"):
        Database(link, state)


def test_links_in_a_circle_are_said_so(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(link)
    with pytest.raises(SettingsError, match="a circle"):
        real(link)
