"""The contract of a FleetBook."""

import asyncio
from dataclasses import dataclass

from shared.fleet import MOST_LEFT
from shared.model.buckets import StoreMillis
from shared.model.errors import AlreadyAppliedError, ChangedError, TransientError
from shared.model.fleet import Fleet
from shared.model.words import MARKED, Bounds, Commit, Receipt, ShardAdd
from shared.ports.store import FleetBook, Left, Store

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

    async def test_a_commit_happens_only_while_the_fleet_names_its_epoch(self, shared: Shared) -> None:
        """A refused one leaves nothing behind, and holds up nobody who changes the fleet."""
        until = StoreMillis(await shared.store.now() + MARKED)

        async def applies(key: str, epoch: str | None) -> bool:
            change = Commit((Receipt(key, FOREVER),), (ShardAdd("a", 0, 1, 1),), bounds=Bounds(until, epoch=epoch))
            try:
                await shared.store.apply(change)
            except ChangedError:
                return False
            return True

        assert [await applies("k1", ""), await applies("k2", "n1"), await applies("k3", None)] == [True, False, True]
        async with asyncio.timeout(10):
            await shared.book.change(lambda fleet, _: fleet.names("n1", "identity", "place"))
            assert [await applies("k4", ""), await applies("k5", "n1"), await applies("k6", None)] == [
                False,
                True,
                True,
            ]
            await shared.elsewhere.change(lambda fleet, _: fleet.names("n2", "identity", "place"))
            assert [await applies("k7", "n1"), await applies("k8", "n2")] == [False, True]
        assert {*(await shared.store.receipts([f"k{number}" for number in range(9)])).found} == {
            *("k1", "k3", "k5", "k6", "k8")
        }

    async def test_commits_in_an_epoch_and_changes_of_the_fleet_do_not_stop_each_other(self, shared: Shared) -> None:
        await shared.book.change(lambda fleet, _: fleet.names("n", "identity", "place"))
        bounds = Bounds(StoreMillis(await shared.store.now() + MARKED), epoch="n")

        async def applies(number: int) -> None:
            while True:
                try:
                    await shared.store.apply(Commit((Receipt(f"k{number}", FOREVER),), (), bounds=bounds))
                except TransientError:
                    continue
                except AlreadyAppliedError:
                    pass
                break

        async def owes(member: str) -> None:
            await shared.book.change(lambda fleet, _: fleet.owes(member, "t"))

        async with asyncio.timeout(30):
            changes = [owes(f"m{number}") for number in range(5)]
            await asyncio.gather(*map(applies, range(10)), *changes)
        assert len((await shared.book.look()).fleet.members) >= 5
        assert len((await shared.store.receipts([f"k{number}" for number in range(10)])).found) == 10

    async def test_a_list_comes_and_goes_with_the_record_that_says_so(self, shared: Shared) -> None:
        keys = {f"e{number:064x}" for number in range(MOST_LEFT)}
        await shared.book.change(lambda fleet, _: fleet.owes("m", "topic").owes("other", "topic"))
        await shared.book.change(lambda _, __: None, Left("m", keys))
        assert await shared.elsewhere.left_by("m") is None, "nothing was changed"
        await shared.book.change(lambda fleet, now: fleet.stops("m", now, listed=True), Left("m", keys))
        await shared.elsewhere.change(lambda fleet, _: fleet.without("other"))
        assert {*(await shared.elsewhere.left_by("m") or ())} == keys
        await shared.elsewhere.change(lambda fleet, _: fleet.without("m"))
        assert await shared.book.left_by("m") is None

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
