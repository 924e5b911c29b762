"""Only their owner can open the data's files, so nobody else can read them, or stop writes with a lock."""

import contextlib
import fcntl
import os
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from shared.model.errors import SettingsError
from shared.model.words import Message
from shared.runtime.clock import SystemClock
from shared.sqlite.broker import SqlitePublisher
from shared.sqlite.database import Database

SOMEBODY: Final = 65_534
"""A user that is not root."""


@contextlib.contextmanager
def umask(number: int) -> Iterator[None]:
    before = os.umask(number)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def owner_of(path: Path) -> int:
    return path.stat().st_uid


def made(path: Path, number: int) -> None:
    path.touch()
    path.chmod(number)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open() as somebody:
        fcntl.flock(somebody, fcntl.LOCK_EX)
        yield


def size(path: Path) -> int:
    return path.stat().st_size


def link(path: Path, to: Path) -> None:
    path.symlink_to(to)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def written(path: Path, elsewhere: Path | None = None) -> dict[str, int]:
    """Write to the file. Returns the modes of all files while it is open."""
    database = Database(path, elsewhere)
    try:
        await SqlitePublisher(database, SystemClock(), 10**6).publish([Message(b'{"counter":"a"}')])
        return {one.name: mode(one) for one in path.parent.iterdir()}
    finally:
        await database.close()


def files(path: Path) -> dict[str, int]:
    return {f"{path.name}{suffix}": 0o600 for suffix in ("", "-wal", "-shm", "-turn")}


@pytest.mark.parametrize("number", [0, 0o022, 0o777])
async def test_new_files_are_their_owners_whatever_the_umask(tmp_path: Path, number: int) -> None:
    path, state = tmp_path / "above" / "data" / "countersink.db", tmp_path / "state" / "files"
    with umask(number):
        assert await written(path, state) == files(path)
    assert [mode(folder) for folder in (path.parent, path.parent.parent, state)] == [0o700] * 3
    assert {mode(file) for file in state.iterdir()} == {0o600}


async def test_what_is_there_and_wider_is_narrowed_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data" / "countersink.db"
    await written(path)
    lock = path.with_name("spool.a.01234567.holder")
    lock.touch()
    for file in path.parent.iterdir():
        file.chmod(0o666)
    path.parent.chmod(0o755)
    assert not caplog.records
    assert await written(path) == files(path) | {lock.name: 0o600}
    assert mode(path.parent) == 0o700
    (line,) = caplog.messages
    assert line.startswith("other users had access to the data; the modes are narrower now: ")
    assert f"{path.parent} (mode 0755), {path} (mode 0666)" in line
    await written(path)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("foreign", ["another program's", "no database"])
async def test_what_is_refused_keeps_its_modes(tmp_path: Path, foreign: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data" / "countersink.db"
    path.parent.mkdir()
    if foreign == "no database":
        path.write_bytes(b"nothing of the kind " * 100)
    else:
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE theirs (id)")
            db.commit()
    path.chmod(0o664)
    path.parent.chmod(0o755)
    with pytest.raises(SettingsError):
        await written(path)
    assert {one.name: mode(one) for one in path.parent.iterdir()} == {path.name: 0o664}
    assert mode(path.parent) == 0o755
    assert not caplog.records


async def test_a_lock_that_somebody_took_while_the_file_was_open_to_all_stops_no_write(tmp_path: Path) -> None:
    path = tmp_path / "countersink.db"
    await written(path)
    turn = Path(f"{path}-turn")
    known = content(turn)
    made(turn, 0o644)
    os.chown(turn, owner := SOMEBODY if os.geteuid() == 0 else os.geteuid(), -1)
    with locked(turn):
        await written(path)
    assert content(turn)[:20] == known[:20]
    assert owner_of(turn) == owner


@pytest.mark.parametrize(
    ("folder_mode", "beside"), [(0o1777, ""), (0o755, "notes.txt")], ids=["for everybody", "with other files"]
)
async def test_a_folder_that_is_not_only_ours_stays_as_it_is(
    tmp_path: Path, folder_mode: int, beside: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(folder_mode)
    if beside:
        (folder / beside).touch(0o644)
    assert (await written(folder / "countersink.db")).items() >= files(folder / "countersink.db").items()
    assert mode(folder) == folder_mode
    assert not caplog.records
    if beside:
        assert mode(folder / beside) == 0o644


async def test_a_folder_in_which_others_can_replace_the_data_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    made(folder / "notes.txt", 0o600)
    await written(folder / "countersink.db")
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "other users can write to this folder, and so replace the data in it"
    ]


async def test_a_folder_with_our_socket_is_only_ours(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.bind(str(folder / "s"))
        await written(folder / "countersink.db")
        assert mode(folder) == 0o700


async def test_links_are_not_followed_to_files_of_others(tmp_path: Path) -> None:
    path, other = tmp_path / "countersink.db", tmp_path / "other"
    made(other, 0o644)
    link(Path(f"{path}-extra"), other)
    await written(path)
    assert mode(other) == 0o644


async def test_no_planted_link_is_followed_when_a_lock_is_renewed(tmp_path: Path) -> None:
    """Those who could write to the folder before can guess the id of the process."""
    path, other = tmp_path / "countersink.db", tmp_path / "other"
    await written(path)
    turn = Path(f"{path}-turn")
    made(turn, 0o666)
    made(other, 0o644)
    link(turn.with_name(f"{turn.name}.{os.getpid()}"), other)
    await written(path)
    assert (size(other), mode(other)) == (0, 0o644)
    assert mode(turn) == 0o600
