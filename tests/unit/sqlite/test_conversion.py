"""Files of earlier releases are copied and converted, or left alone with a line that says what to do."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from shared.config.findings import FAIL, WARN
from shared.model.errors import SettingsError
from shared.model.words import Message
from shared.sqlite import database, schema
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database
from shared.sqlite.schema import FIRST, Step
from shared.sqlite.setup import SqliteSetup
from tests.meta.checkout import ROOT
from tests.unit.sqlite.test_database import prepared_at_once
from tests.world.manual_clock import ManualClock

NEXT: Final = (Step("7.8.9", "ALTER TABLE shards ADD COLUMN of_a_test INTEGER NOT NULL DEFAULT 0"),)
AFTER: Final = (*NEXT, Step("8.0.0", "CREATE TABLE more (a); INSERT INTO more VALUES (1)"))


@pytest.fixture
async def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a message, of a version without steps."""
    monkeypatch.setattr(schema, "STEPS", ())
    path = tmp_path / "countersink.db"
    made = Database(path)
    await SqlitePublisher(made, ManualClock(), 10**9).publish([Message(b'{"counter":"a"}')])
    await made.close()
    return path


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LONGEST_TURN", 0.0)


def kept(path: Path) -> Path:
    return Path(f"{path}-schema-{FIRST}")


def found(path: Path, query: str) -> Any:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(query).fetchone()


def state(path: Path) -> tuple[Any, ...]:
    return (
        *found(path, "PRAGMA user_version"),
        *found(path, "SELECT name FROM release"),
        *found(path, "SELECT count(*) FROM messages"),
        *found(path, "SELECT count(*) FROM pragma_table_info('shards') WHERE name = 'of_a_test'"),
    )


NEVER_ENDS: Final = """
import asyncio, sys
from pathlib import Path
from shared.sqlite import schema
from shared.sqlite.database import Database

async def convert():
    Database(Path(sys.argv[1]))

endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
schema.STEPS = (schema.Step("7.8.9", f"{sys.argv[2]}; CREATE TABLE endless AS {endless}"),)
asyncio.run(convert())
"""
OLD: Final = (FIRST, "0.1.0", 1, 0)


async def test_an_older_file_is_copied_and_converted(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema, "STEPS", AFTER)
    await Database(path).close()
    assert state(path) == (FIRST + 2, "8.0.0", 1, 1)
    assert found(path, "SELECT a FROM more") == (1,)
    assert state(kept(path)) == OLD
    assert kept(path).stat().st_mode & 0o777 == 0o600
    assert f"converted from schema {FIRST} to {FIRST + 2}; {kept(path)} is as it was before" in caplog.text
    await Database(path).close()
    assert found(path, "PRAGMA journal_mode") == ("wal",)


async def test_what_a_start_that_was_killed_has_left_is_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = path.parent / f"{kept(path).name}.unfinished-a1"
    left.mkdir()
    (left / "copy").write_bytes(b"half")
    monkeypatch.setattr(schema, "STEPS", NEXT)
    await Database(path).close()
    assert state(kept(path)) == OLD
    assert not left.exists()


async def test_only_the_steps_that_are_missing_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in (NEXT, AFTER):
        monkeypatch.setattr(schema, "STEPS", steps)
        await Database(path).close()
    assert state(path) == (FIRST + 2, "8.0.0", 1, 1)
    assert state(Path(f"{path}-schema-{FIRST + 1}")) == (FIRST + 1, "7.8.9", 1, 1)


async def test_a_later_file_names_the_release_to_use_and_the_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(schema, "STEPS", NEXT)
        await Database(path).close()
    why = rf"has schema {FIRST + 1}, .*: use Countersink 7\.8\.9 or later"
    with pytest.raises(SettingsError, match=rf"{why}, or go back to .*-schema-\d+, as docs"):
        Database(path)
    kept(path).unlink()
    with pytest.raises(SettingsError, match=f"{why}$"):
        Database(path)
    assert state(path) == (FIRST + 1, "7.8.9", 1, 1)


async def test_a_file_that_others_have_open_is_not_converted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = Database(path)
    monkeypatch.setattr(schema, "STEPS", NEXT)
    with pytest.raises(SettingsError, match="other processes use it: stop them"):
        Database(path)
    await SqlitePublisher(older, ManualClock(), 10**9).publish([Message(b'{"counter":"b"}')])  # goes on as before
    await older.close()
    await Database(path).close()
    assert state(path) == (FIRST + 1, "7.8.9", 2, 1)
    assert state(kept(path)) == (FIRST, "0.1.0", 2, 0)


async def test_a_disk_without_room_for_the_copy_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "STEPS", NEXT)
    monkeypatch.setattr(schema, "ROOM", 2**50)
    with pytest.raises(SettingsError, match=r"its conversion needs [\d,]+ MiB on its disk, where [\d,]+ MiB are free"):
        Database(path)
    assert not kept(path).exists()
    assert state(path) == OLD
    assert any("its conversion needs" in said for said in await findings(path, FAIL))


async def findings(path: Path, mark: str) -> list[str]:
    return [one.said async for one in SqliteSetup(path, 0).findings() if one.mark == mark]


async def test_doctor_says_that_the_next_start_converts_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("schema" in said for said in await findings(path, WARN))
    monkeypatch.setattr(schema, "STEPS", NEXT)
    assert any(f"converts it to schema {FIRST + 1}" in said for said in await findings(path, WARN))
    assert state(path) == OLD


async def test_steps_that_fail_change_nothing_and_the_next_start_uses_the_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(schema, "STEPS", (*NEXT, Step("8.0.0", "CREATE TABLE shards (a)")))
        with pytest.raises(SettingsError, match="already exists"):
            Database(path)
    assert state(path) == state(kept(path)) == OLD
    copied = kept(path).stat().st_ino
    monkeypatch.setattr(schema, "STEPS", NEXT)
    await Database(path).close()
    assert state(path) == (FIRST + 1, "7.8.9", 1, 1)
    assert kept(path).stat().st_ino == copied, "the copy is used"


def convert_until_killed(path: Path) -> None:
    command = [sys.executable, "-c", NEVER_ENDS, str(path), NEXT[0].script]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        until = time.monotonic() + 60
        log = Path(f"{path}-wal")
        while not kept(path).exists() or not log.exists() or log.stat().st_size < 2**22:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()


async def test_a_start_that_is_killed_in_the_middle_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_until_killed(path)
    assert state(kept(path)) == OLD
    copied = kept(path).stat().st_ino
    monkeypatch.setattr(schema, "STEPS", NEXT)
    await Database(path).close()
    assert state(path) == (FIRST + 1, "7.8.9", 1, 1)
    assert kept(path).stat().st_ino == copied


async def test_the_copy_of_an_earlier_upgrade_is_never_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "STEPS", (Step("8.0.0", "CREATE TABLE shards (a)"),))
    with pytest.raises(SettingsError):
        Database(path)
    monkeypatch.setattr(schema, "STEPS", ())
    older = Database(path)  # the user goes back, and counts
    await SqlitePublisher(older, ManualClock(), 10**9).publish([Message(b'{"counter":"b"}')])
    await older.close()
    monkeypatch.setattr(schema, "STEPS", NEXT)
    with pytest.raises(SettingsError, match="is from an earlier upgrade: move it away"):
        Database(path)
    assert state(kept(path)) == OLD
    kept(path).rename(path.with_name("elsewhere"))
    await Database(path).close()
    assert state(path) == (FIRST + 1, "7.8.9", 2, 1)


async def test_many_processes_that_start_at_once_convert_it_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "STEPS", NEXT)
    monkeypatch.setattr(database, "LONGEST_TURN", 60.0)
    assert prepared_at_once(path) == []
    assert state(path) == (FIRST + 1, "7.8.9", 1, 1)
