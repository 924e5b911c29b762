"""A backup while the service counts: it has all that was accepted before, it starts, and ids in it count once."""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from shared.model.errors import CountersinkError, SettingsError
from shared.sqlite import backup as backups
from shared.sqlite.backup import copy
from tests.cli.running import Done, make_file, run, total
from tests.processes.harness import processes


async def backup(data: Path, target: Path, *more: str) -> Done:
    return await asyncio.to_thread(run, "backup", str(target), "--data", str(data), *more, cwd=data)


class Clients:
    """Count increments with ids, one after the other, until they are told to stop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.accepted = 0
        self.stopped = False

    async def send(self, session: aiohttp.ClientSession, number: int) -> bool:
        async with session.post(f"{self.url}/v1/counters/a", json={"id": f"id-{number}"}) as response:
            return response.status == 202

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self.stopped:
                assert await self.send(session, self.accepted)
                self.accepted += 1


@pytest.mark.parametrize("interval", ["0.01", "60"])
async def test_a_backup_has_what_was_accepted_before_and_counts_on(tmp_path: Path, interval: str) -> None:
    """`interval`: most is applied, or all is pending."""
    data, copied = tmp_path / "data", tmp_path / "copy"
    copied.mkdir()
    settings = {"COUNTERSINK_FLUSH_INTERVAL": interval}
    async with processes(data, tmp_path / "log", **settings) as started:
        running = await started.start("up", "--port", "0")
        clients = Clients(running.url)
        counting = asyncio.create_task(clients.run())
        while clients.accepted < 100:
            await asyncio.sleep(0.01)
        before = clients.accepted
        done = await backup(data, copied / "countersink.db", "--json")
        after = clients.accepted + 1
        assert done.code == 0, done
        assert json.loads(done.out)["size"] == (copied / "countersink.db").stat().st_size
        clients.stopped = True
        await counting
        assert await total(running.url) == clients.accepted
    assert [one.name for one in copied.iterdir()] == ["countersink.db"]
    assert stat.S_IMODE((copied / "countersink.db").stat().st_mode) == 0o600
    async with processes(copied, tmp_path / "log") as started, aiohttp.ClientSession() as session:
        running = await started.start("up", "--port", "0")
        held = await total(running.url)
        assert before <= held <= after
        again = Clients(running.url)
        for number in range(clients.accepted):
            assert await again.send(session, number)
        assert await total(running.url) == clients.accepted
    assert run("audit", "--data", str(copied), cwd=copied).code == 0


async def test_a_backup_is_put_back_as_the_page_says(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    async with processes(data, tmp_path / "log") as started, aiohttp.ClientSession() as session:
        running = await started.start("up", "--port", "0")
        clients = Clients(running.url)
        for number in range(3):
            assert await clients.send(session, number)
        assert (await backup(data, copy)).code == 0
        assert await clients.send(session, 3)
        assert await total(running.url) == 4
    for one in data.glob("countersink.db-[ws]*"):
        one.unlink()
    shutil.copy(copy, data / "countersink.db")
    assert run("doctor", "--trust-file", "--data", str(data), cwd=data).code == 0
    async with processes(data, tmp_path / "log") as started:
        assert await total((await started.start("up", "--port", "0")).url) == 3


def test_a_backup_replaces_no_file_and_leaves_none_unfinished(tmp_path: Path) -> None:
    cloud = {"COUNTERSINK_BROKER": "pubsub://p/t", "COUNTERSINK_STORE": "datastore://p"}
    make_file(tmp_path)
    there = tmp_path / "there.db"
    there.write_text("precious")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "countersink.db").write_text("no database" * 100)
    for target, more, settings, said in (
        ("copy.db", ("--data", "none"), {}, "does not exist, so there is nothing to copy"),
        ("there.db", (), {}, "already exists"),
        ("no/copy.db", (), {}, "does not exist: make it first"),
        ("copy.db", (), cloud, "docs/google-cloud-outages.md"),
        ("copy.db", ("--data", "text"), {}, "stop all processes on the file and put a backup in its place"),
    ):
        assert said in run("backup", target, *more, cwd=tmp_path, **settings).refusal
    assert there.read_text() == "precious"
    assert [*tmp_path.glob("*copy*")] == []


def test_a_link_that_somebody_planted_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder where others may write. They can guess the id of a process."""
    make_file(tmp_path)
    victim, lost = tmp_path / "victim", tmp_path / "lost"
    victim.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    for number in range(os.getpid() - 5, os.getpid() + 5):
        for end in ("", "-journal", "-wal"):
            (shared / f"copy.db.unfinished-{number}{end}").symlink_to(victim)
    copied = copy(tmp_path / ".countersink" / "countersink.db", shared / "copy.db")
    assert (copied.size, victim.read_text()) == ((shared / "copy.db").stat().st_size, "precious")
    assert stat.S_IMODE((shared / "copy.db").stat().st_mode) == 0o600
    (shared / "dangling.db").symlink_to(lost)
    with pytest.raises(SettingsError, match="already exists"):
        copy(tmp_path / ".countersink" / "countersink.db", shared / "dangling.db")
    # Nobody else may enter the folder in which the copy is made.
    seen: list[tuple[int, str]] = []
    monkeypatch.setattr(
        backups,
        "_copy",
        lambda _, target: seen.append((stat.S_IMODE(target.parent.stat().st_mode), target.parent.name)),
    )
    with pytest.raises(CountersinkError):
        copy(tmp_path / ".countersink" / "countersink.db", shared / "other.db")
    ((mode, name),) = seen
    assert mode == 0o700
    assert not (shared / name).exists()
    assert not lost.exists()


def test_a_damaged_file_is_said_and_gives_no_copy(tmp_path: Path) -> None:
    make_file(tmp_path)
    file = tmp_path / ".countersink" / "countersink.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'configs'")
        db.commit()
    done = run("backup", "copy.db", cwd=tmp_path)
    assert done.code == 1, done
    assert not (tmp_path / "copy.db").exists()
    assert [*tmp_path.glob("copy*")] == []
