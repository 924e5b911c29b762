"""Members of the fleet: an ingest joins with the overlay in its memory, and leaves a list of what is not applied. One
look at the fleet serves all who ask, and is never older than what was known before.
"""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from countersink_server.serve.run import patience_of
from shared.config.findings import WARN
from shared.config.settings import Settings
from shared.fleet import (
    CHANGE_WITHIN,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_KEYS_ASKED,
    MOST_LEFT,
    OWES,
    STOPPED,
    FleetView,
    Membership,
    SpoolHolders,
    StoppedMembers,
    in_memory,
)
from shared.memory import MemberOverlay
from shared.model.buckets import StoreMillis
from shared.model.errors import OverloadedError, SettingsError, TransientError
from shared.model.fleet import Fleet, PublisherRecord
from shared.model.words import Commit, Receipt, Receipts
from shared.ports.store import FleetLook
from shared.runtime.clock import SystemClock
from shared.runtime.retry import Stop
from shared.wiring.doctor import FleetSetup
from tests.world.manual_clock import ManualClock
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
    monkeypatch.setattr("shared.memory.LOOK_EVERY", 0.2)
    monkeypatch.setattr("shared.memory.AGAIN", 0.02)
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
        monkeypatch.setattr("shared.memory.LOOK_EVERY", 60.0)
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
from shared.fleet import SpoolHolders
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


class Store(MemoryStore):
    """Says how many receipts it was asked for, and may be away."""

    asked = 0
    away = False

    async def receipts(self, keys: Collection[str]) -> Receipts:
        if self.away:
            raise TransientError("away")
        self.asked += len(keys)
        return await super().receipts(keys)


class Scene:
    """A member that is about to stop, and another one that tidies."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store(self.clock)
        self.book = MemoryFleetBook(self.store)
        self.looks = FleetView(self.book, self.clock, 0.0)
        self.member = Membership(self.looks, self.clock, member="m", topic="t")
        self.stopped = StoppedMembers(self.looks, self.store, self.clock)

    async def stop(self, keys: Collection[str]) -> None:
        await self.member.owe()
        await self.member.stop()
        await self.member.leave(keys)

    async def apply(self, *keys: str) -> None:
        await self.store.apply(Commit(tuple(Receipt(key, StoreMillis(10**14)) for key in keys), ()))

    async def tidy(self) -> bool:
        """Whether its record is gone then."""
        await self.stopped.tidy(await self.book.look())
        return await self.record() is None

    async def record(self) -> PublisherRecord | None:
        return (await self.book.look()).fleet.members.get("m")


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_record_goes_when_all_of_the_list_is_settled(scene: Scene) -> None:
    await scene.stop(["e1", "e2", "e3"])
    assert not await scene.tidy()
    await scene.apply("e1", "e3")
    scene.clock.turn(2 * FIRST_PAUSE)
    assert not await scene.tidy()
    scene.clock.turn(FIRST_PAUSE)
    await scene.apply("e2")
    assert await scene.tidy()
    assert scene.store.asked == 3 + 3 + 1, "it asks for what is missing only"
    assert await scene.book.left_by("m") is None


async def test_it_asks_more_and_more_rarely_and_again_after_the_store_was_away(scene: Scene) -> None:
    await scene.stop(["e"])
    for _ in range(600):
        assert not await scene.tidy()
        scene.clock.turn(1.0)
    assert 600 / LONGEST_PAUSE < scene.store.asked < 20
    scene.store.away = True
    scene.clock.turn(LONGEST_PAUSE)
    assert not await scene.tidy()
    await scene.apply("e")
    scene.store.away = False
    assert await scene.tidy()


async def test_a_long_list_is_looked_up_in_parts(scene: Scene) -> None:
    keys = [f"e{number}" for number in range(2 * MOST_KEYS_ASKED)]
    await scene.stop(keys)
    await scene.apply(*keys[MOST_KEYS_ASKED:])
    assert not await scene.tidy()
    assert scene.store.asked == MOST_KEYS_ASKED
    await scene.apply(*keys[:MOST_KEYS_ASKED])
    scene.clock.turn(LONGEST_PAUSE)
    assert await scene.tidy()


@pytest.mark.parametrize("lost", [True, False])
async def test_without_a_list_nothing_is_taken_for_settled(scene: Scene, *, lost: bool) -> None:
    """It is too long, or somebody deleted it: flushers have to see that nothing is left."""
    await scene.stop([f"e{number}" for number in range(1 if lost else MOST_LEFT + 1)])
    scene.book._left.clear()
    assert not await scene.tidy()
    record = await scene.record()
    assert record is not None
    assert (record.gone(), record.listed) == (True, lost)


async def test_one_that_stops_with_nothing_pending_is_removed_at_once(scene: Scene) -> None:
    await scene.stop([])
    assert await scene.record() is None


async def test_one_that_has_stopped_answers_nothing_and_stays_stopped(scene: Scene) -> None:
    await scene.member.owe()
    assert await scene.member.stop() == OWES
    for _ in range(2):
        with pytest.raises(OverloadedError):
            scene.member.check()
        with pytest.raises(OverloadedError):
            await scene.member.owe()
        assert not await scene.member.join(0)
        await scene.member.leave(["e"])
    assert scene.member.state == STOPPED


async def test_a_stop_is_tried_again_while_the_store_is_silent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a try whose answer was lost is repeated without harm."""
    monkeypatch.setattr("shared.fleet.CHANGE_WITHIN", 0.01)
    change = scene.book.change
    await scene.member.owe()
    await scene.member.stop()
    tries = 0

    async def hangs(step: Any, left: Any = None) -> Any:
        nonlocal tries
        tries += 1
        if tries == 2:
            await change(step, left)
        return await (change(step, left) if tries > 3 else asyncio.Event().wait())

    monkeypatch.setattr(scene.book, "change", hangs)
    await scene.member.leave(["e"], 60.0)
    record = await scene.record()
    assert record is not None
    assert record.listed
    assert await scene.book.left_by("m") == ["e"]
    tries = -1000
    with pytest.raises(TransientError, match="has not answered"):
        await scene.member.leave(["e"], 0.05)


async def test_a_stop_is_tried_for_as_long_as_the_process_has_left() -> None:
    """By the time at which it was told to stop; at least for about as long as the store has for one change."""
    stop, settings = Stop(), Settings(drain_timeout=10.0)
    assert patience_of(stop, settings) == CHANGE_WITHIN
    stop.set()
    assert 13.0 < patience_of(stop, settings) <= 14.0
    assert stop.at is not None
    stop.at -= 100.0
    stop.set()
    assert patience_of(stop, settings) == CHANGE_WITHIN - 1.0


@pytest.mark.parametrize("flusher", [None, "t", "another"])
async def test_doctor_says_what_it_waits_for_and_drops_what_is_missing_only_by_name(
    scene: Scene, flusher: str | None
) -> None:
    await scene.looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    if flusher is not None:
        await scene.looks.change(lambda fleet, now: fleet.flushes("f", flusher, now))
    await scene.stop([f"e{number}" for number in range(MOST_KEYS_ASKED + 5)])
    await scene.apply("e0", f"e{MOST_KEYS_ASKED}")
    setup = FleetSetup(scene.book, scene.store)
    (finding,) = await setup.findings()
    assert "process m on t stopped at 2027-" in finding.said
    assert "1,003 of its messages are not applied: no read is exact until what it accepted is applied" in finding.said
    what = "wait for the flushers" if flusher == "t" else "no flusher of its topic runs: start one"
    assert what in finding.said
    before = await scene.record()
    with pytest.raises(
        SettingsError, match=f"1,003 of its messages are not applied: {what}.*name the process: --trust-overlay m$"
    ):
        await setup.trust(patience=0.0)
    assert await scene.record() == before
    assert await setup.trust("m", patience=0.0)
    assert await scene.record() is None


async def test_doctor_drops_a_stopped_process_of_which_nothing_is_missing(scene: Scene) -> None:
    await scene.looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    await scene.stop(["e"])
    await scene.apply("e")
    assert await FleetSetup(scene.book, scene.store).trust(patience=0.0)
    assert await scene.record() is None


class ForbiddenBook(MemoryFleetBook):
    """The account may not write to the database."""

    async def change(self, *_: Any) -> FleetLook:
        raise TransientError("grant it the role roles/datastore.user")


async def test_provision_says_if_it_cannot_make_the_record_of_the_fleet(scene: Scene) -> None:
    assert [one async for one in FleetSetup(scene.book, scene.store).make()] == []
    (finding,) = [one async for one in FleetSetup(ForbiddenBook(scene.store), scene.store).make()]
    assert finding.mark == WARN
    assert "grant it the role" in finding.said


async def test_a_fleet_whose_entity_was_deleted_is_seen_as_it_is(scene: Scene) -> None:
    """It follows the runbook for a store that was restored. No reader may wait for the old version for ever."""
    book, looks = scene.book, scene.looks
    await looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    book._fleet = Fleet()
    scene.clock.turn(1.0)
    async with asyncio.timeout(60):
        look = await looks.get()
    assert look is not None
    assert look.fleet.version == 0


async def test_a_look_that_began_before_a_change_does_not_undo_it(scene: Scene) -> None:
    book, looks = scene.book, scene.looks
    old, look = await book.look(), book.look
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> FleetLook:
        begun.set()
        await go_on.wait()
        book.look = look  # type: ignore[method-assign]
        return old

    book.look = slow  # type: ignore[method-assign]
    asking = asyncio.create_task(looks.get())
    await begun.wait()
    book.look = look  # type: ignore[method-assign]
    scene.clock.turn(0.1)
    await looks.change(lambda fleet, _: fleet.names("n", "i", "p"))
    go_on.set()
    await asking
    assert looks.last is not None
    assert looks.last.fleet.overlay.epoch == 1
