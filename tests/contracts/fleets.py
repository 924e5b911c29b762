"""The contract of a FleetBook."""

import asyncio
from dataclasses import dataclass

from shared.model.fleet import Fleet
from shared.model.times import StoreMillis
from shared.model.words import Commit, Receipt
from shared.ports.fleet import FleetBook
from shared.ports.store import Store

FOREVER = StoreMillis(4_000_000_000_000)


@dataclass
class Shared:
    """Two processes on one store, which is empty."""

    book: FleetBook
    elsewhere: FleetBook
    store: Store


class FleetContract:
    """Inherit it and say what `shared` is."""

    async def test_without_an_entity_nobody_is_a_member(self, shared: Shared) -> None:
        look = await shared.book.look()
        assert look.fleet == Fleet()
        assert look.changed == 0
        assert not look.fleet.whole()

    async def test_a_change_is_seen_by_all_and_is_a_time_of_the_store(self, shared: Shared) -> None:
        first = await shared.store.apply(Commit((Receipt("e1", FOREVER),), ()))
        await shared.book.change(lambda fleet, _: fleet.without("older"))
        changed = await shared.book.change(lambda fleet, _: fleet.owes("m", "topic", "spool"))
        second = await shared.store.apply(Commit((Receipt("e2", FOREVER),), ()))
        for book in (shared.book, shared.elsewhere):
            look = await book.look()
            assert look.fleet == changed.fleet
            assert first < look.changed < second
            assert look.fleet.members["m"].since == look.fleet.version == 2

    async def test_a_snapshot_of_before_is_older_than_the_change(self, shared: Shared) -> None:
        await shared.store.apply(Commit((Receipt("e1", FOREVER),), ()))
        async with shared.store.snapshot() as before:
            pass
        await shared.elsewhere.change(lambda fleet, _: fleet.owes("m", "topic"))
        look = await shared.book.look()
        assert before.time < look.changed
        await shared.store.receipts(["e1"])
        async with asyncio.timeout(60):
            while True:
                async with shared.store.snapshot() as after:
                    if after.time >= look.changed:
                        break

    async def test_a_step_that_changes_nothing_writes_nothing(self, shared: Shared) -> None:
        assert (await shared.book.change(lambda _, __: None)).fleet.version == 0
        before = await shared.book.change(lambda fleet, _: fleet.owes("m", "topic"))
        look = await shared.book.change(lambda _, __: None)
        assert (look.fleet, look.changed) == (before.fleet, before.changed)

    async def test_a_store_that_was_used_begins_with_one_who_may_be_missing(self, shared: Shared) -> None:
        await shared.store.apply(Commit((Receipt("e1", FOREVER),), ()))
        look = await shared.book.change(lambda fleet, _: fleet.names("n", "identity", "place").joins("m", "topic"))
        (older,) = look.fleet.apart().values()
        assert older.struck
        assert not look.fleet.whole()

    async def test_changes_at_once_are_all_there(self, shared: Shared) -> None:
        async def add(number: int) -> None:
            book = (shared.book, shared.elsewhere)[number % 2]
            await book.change(lambda fleet, _: fleet.owes(f"m{number}", "topic"))

        await asyncio.gather(*(add(number) for number in range(6)))
        fleet = (await shared.book.look()).fleet
        assert fleet.members.keys() == {f"m{number}" for number in range(6)}
        assert fleet.version == 6
        assert len({record.since for record in fleet.members.values()}) == 6
