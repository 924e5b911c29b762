"""An ingest whose overlay is its own memory is a member of the fleet; locks tell which processes hold a spool file."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.fleet.fleet_view import FleetView
from shared.fleet.membership import OWES, Membership, SpoolHolders, in_memory
from shared.memory.overlay import MemberOverlay
from shared.model.buckets import StoreMillis
from shared.model.errors import TransientError
from shared.model.fleet import Fleet
from shared.ports.store import FleetLook
from shared.runtime.clock import SystemClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore


class Book(MemoryFleetBook):
    """Away when it is told so."""

    away = False

    async def look(self) -> FleetLook:
        if self.away:
            raise TransientError("away")
        return await super().look()


class File:
    """A spool file without a row."""

    id = "spool"

    def hold(self, member: str) -> None: ...

    def alive(self) -> set[str]:
        return set()

    def rows(self) -> "File":
        return self

    unreadable: bool | None = None

    async def read(self) -> AsyncIterator[Any]:
        self.unreadable = False
        nothing: tuple[Any, ...] = ()
        for row in nothing:
            yield row

    async def all_forwarded(self) -> bool:
        return True


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setattr("shared.memory.overlay.LOOK_EVERY", 0.2)
    monkeypatch.setattr("shared.memory.overlay.AGAIN", 0.02)
    return Book(MemoryStore(SystemClock()))


def overlay(book: Book, spool: File | None = None) -> MemberOverlay:
    clock = SystemClock()
    looks = FleetView(book, clock, 0.0)
    member = in_memory("topic", spool.id if spool is not None else "")
    return MemberOverlay(clock, looks, Membership(looks, clock, member=member, topic="topic", spool=spool))


async def changed(book: Book, step: Callable[[Fleet], Fleet]) -> None:
    await book.change(lambda fleet, _: step(fleet))


async def test_after_a_look_that_failed_it_looks_again_soon(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may wait only so long for its word that it lives."""
    one = overlay(book)
    await one.open()
    book.away = True
    async with asyncio.timeout(60):
        while one._looks.answered:
            await asyncio.sleep(0.01)
        monkeypatch.setattr("shared.memory.overlay.LOOK_EVERY", 60.0)
        book.away = False
        await changed(book, lambda fleet: fleet.strikes("memory-topic", StoreMillis(5)))
        while book._fleet.members["memory-topic"].struck:
            await asyncio.sleep(0.01)
    await one.close()


async def test_its_record_names_its_spool_though_another_member_took_it_over_before(book: Book) -> None:
    await changed(book, lambda fleet: fleet.owes("memory-spool", "topic", "spool"))
    await changed(book, lambda fleet: fleet.takes_over({"memory-spool"}, StoreMillis(5)))
    one = overlay(book, File())
    await one.open()
    assert book._fleet.members["memory-spool"].spool == "spool"
    await one.close()


async def test_it_does_not_say_that_it_has_joined_after_it_said_that_it_owes(book: Book) -> None:
    """A publish had no patience with Redis while the join waited for its turn, and was answered since."""
    clock = SystemClock()
    looks = FleetView(book, clock, 0.0)
    member = Membership(looks, clock, member="one", topic="topic", spool=None)
    await changed(book, lambda fleet: fleet.names("nonce", "server", "place"))
    async with member._turn:
        owing = asyncio.create_task(member.owe())
        await asyncio.sleep(0)
        joining = asyncio.create_task(member.join(1))
        await asyncio.sleep(0)
    await owing
    assert member.state == OWES
    assert not await joining
    assert member.state == OWES
    assert not book._fleet.whole()
    assert await member.join(1)
    assert book._fleet.whole()


HOLD = """
import sys
from pathlib import Path
from shared.fleet.membership import SpoolHolders
holders = SpoolHolders(Path(sys.argv[1]), "spool")
holders.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def holder(folder: Path, member: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), member], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_process_is_alive_until_it_has_ended_however_it_does(tmp_path: Path) -> None:
    killed, stands = holder(tmp_path, "killed"), holder(tmp_path, "stands")
    own = SpoolHolders(tmp_path, "spool")
    own.hold("own")
    assert own.alive() == {"own", "killed", "stands"}
    os.kill(stands.pid, signal.SIGSTOP)  # and may go on
    kill(killed)
    assert own.alive() == {"own", "stands"}
    kill(stands)
    assert own.alive() == {"own"}
    assert len([*tmp_path.iterdir()]) == 1, "locks of those that are gone are removed"


def test_a_member_of_several_processes_lives_as_long_as_one_of_them(tmp_path: Path) -> None:
    first, second = holder(tmp_path, "shared"), holder(tmp_path, "shared")
    own = SpoolHolders(tmp_path, "spool")
    kill(first)
    assert own.alive() == {"shared"}
    kill(second)
    assert own.alive() == set()


def test_holders_of_another_file_in_the_folder_do_not_count(tmp_path: Path) -> None:
    other = SpoolHolders(tmp_path, "spool.orders")
    other.hold("other")
    assert SpoolHolders(tmp_path, "spool").alive() == set()
    other.close()
    SpoolHolders(tmp_path, "spool").alive()
    assert len([*tmp_path.iterdir()]) == 1


def test_a_lock_that_may_not_be_read_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another user's."""
    one = SpoolHolders(tmp_path, "spool")
    one.hold("one")
    one.close()

    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert SpoolHolders(tmp_path, "spool").alive() == {"one"}
    assert SpoolHolders(tmp_path, "spool").alive() == set()


def test_nobody_else_can_open_a_lock_and_so_keep_a_process_alive(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        holders = SpoolHolders(tmp_path, "spool")
        holders.hold("a")
    finally:
        os.umask(before)
    (lock,) = tmp_path.iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    holders.close()
