"""An ingest whose overlay is its own memory is a member of the fleet."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from shared.fleet.fleet_view import FleetView
from shared.fleet.membership import OWES, Membership, in_memory
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
