"""The contract of dead receipts with a body: a snapshot finds what they stand for until they are applied or dropped."""

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from shared.model.buckets import HOUR, NEVER, BrokerMillis, StoreMillis
from shared.model.dead_letters import read_body, with_body
from shared.model.errors import AlreadyAppliedError, LateError
from shared.model.words import DEAD, DROPPED, Bounds, Commit, Entry, Envelope, Increment, Receipt, ShardAdd, Total
from shared.ports.store import Store
from tests.contracts.guards import guard, setting
from tests.contracts.store import LATER, commit, snapshot_of, total

UNTIL: Final = StoreMillis(2**40)
X: Final = Increment("a", 10, receipt="ix")


def dead(
    key: str, sums: dict[str, int], *keyed: Increment, why: str = "because", until: StoreMillis = UNTIL
) -> Receipt:
    envelope = Envelope("", sums, {}, keyed, 4, receipt=key)
    return with_body(Receipt(key, LATER, DEAD), envelope, why, BrokerMillis(5), until)


def buried(*receipts: Receipt) -> Commit:
    return Commit(receipts, ())


async def look(store: Store, counter: str = "a", *keys: str) -> tuple[Total, set[str]]:
    totals, settled = await snapshot_of(store, [counter], keys)
    return totals[counter], {*settled}


class DeadContract:
    """Inherit it beside `StoreContract`."""

    async def test_what_is_dead_is_found_by_each_of_its_counters(self, store: Store) -> None:
        await store.apply(commit(("a", 1)))
        assert (await look(store))[0].dead == ()
        await store.apply(buried(dead("k", {"a": 5, "b": -7}, X)))
        of_a, settled = await look(store, "a", "k", "other")
        assert (of_a.value, of_a.dead, of_a.sure_until) == (1, (Entry("k", 5, (("ix", 10),)),), UNTIL)
        assert settled == {"k"}
        of_b, _ = await look(store, "b")
        assert (of_b.value, of_b.shards, of_b.dead, of_b.sure_until) == (0, 0, (Entry("k", -7),), 0)
        assert (await look(store, "c"))[0].dead == ()

    async def test_without_a_body_only_its_letter_knows_what_is_dead(self, store: Store) -> None:
        """It was given up for its age."""
        await store.apply(commit(keys=("k",), state=DEAD))
        found, settled = await look(store, "a", "k")
        assert (found.dead, settled) == ((), set())
        assert await store.dead("", 10) == []

    async def test_a_body_that_comes_later_is_found_like_one_from_the_start(self, store: Store) -> None:
        await store.apply(commit(keys=("k",), state=DEAD))
        await store.apply(Commit((), (), (dead("k", {"a": 5}),)))
        found, settled = await look(store, "a", "k")
        assert (found.dead, settled) == ((Entry("k", 5),), {"k"})

    async def test_ids_are_asked_for_at_the_same_instant(self, store: Store) -> None:
        await store.apply(buried(dead("k", {}, X, Increment("a", 100, receipt="iy"))))
        assert (await look(store))[1] == set()
        async with store.snapshot() as snapshot:
            await store.apply(commit(("a", 10), keys=("ix",)))
            _, before = await snapshot.read(["a"], ())
        _, after = await look(store)
        assert {*before} == set()
        assert after == {"ix"}

    async def test_a_replay_moves_it_from_the_dead_to_the_shards_in_one_step(self, store: Store) -> None:
        await store.apply(buried(dead("k", {"a": 5}), dead("l", {"a": 50})))
        await store.apply(Commit((), (ShardAdd("a", 0, 5, 1),), (Receipt("k", LATER),)))
        found, settled = await look(store, "a", "k", "l")
        assert (found.value, found.dead, settled) == (5, (Entry("l", 50),), {"k", "l"})
        assert (await store.receipts(["k"])).found == {"k": Receipt("k", LATER)}
        assert [one.key for one in await store.dead("", 10)] == ["l"]

    async def test_no_snapshot_sees_it_twice_or_not_at_all(self, store: Store) -> None:
        """While it is buried, and while it is replayed."""
        done = asyncio.Event()

        async def write() -> None:
            for number in range(12):
                key = f"k{number}"
                await store.apply(buried(dead(key, {"a": 1})))
                await store.apply(Commit((), (ShardAdd("a", 0, 1, 1),), (Receipt(key, LATER),)))
            done.set()

        async def read() -> None:
            keys = [f"k{number}" for number in range(12)]
            while not done.is_set():
                found, settled = await look(store, "a", *keys)
                assert found.value + sum(entry.delta for entry in found.dead) == len(settled), (found, settled)
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())
        assert await total(store, "a") == 12

    async def test_what_is_dropped_is_found_no_more_and_can_not_be_replayed(self, store: Store) -> None:
        await store.apply(buried(dead("k", {"a": 5})))
        await store.apply(Commit((), (), (Receipt("k", LATER, DROPPED),)))
        found, settled = await look(store, "a", "k")
        assert (found.dead, settled) == ((), {"k"})
        assert await store.dead("", 10) == []
        for late in (Commit((), (ShardAdd("a", 0, 5, 1),), (Receipt("k", LATER),)), commit(("a", 5), keys=("k",))):
            with pytest.raises(AlreadyAppliedError):
                await store.apply(late)
        assert await total(store, "a") == 0

    async def test_what_is_revived_in_time_counts_and_what_is_late_stays_dead(self, store: Store) -> None:
        await store.apply(buried(dead("k", {"a": 5})))
        now = await store.now()
        revival = Commit((), (ShardAdd("a", 0, 5, 1),), (Receipt("k", LATER),))
        with pytest.raises(LateError):
            await store.apply(replace(revival, bounds=Bounds(StoreMillis(now - HOUR))))
        assert len((await look(store))[0].dead) == 1
        await store.apply(replace(revival, bounds=Bounds(StoreMillis(now + 2 * HOUR))))
        assert ((await look(store))[0].dead, await total(store, "a")) == ((), 5)

    async def test_it_never_expires_and_what_came_of_it_does(self, store: Store) -> None:
        await store.apply(buried(dead("k", {"a": 5}), dead("l", {"a": 50})))
        await store.apply(Commit((), (ShardAdd("a", 0, 5, 1),), (Receipt("k", StoreMillis(1_000)),)))
        await store.sweep(StoreMillis(LATER * 2), 100)
        assert [*(await store.receipts(["k", "l"])).found] == ["l"]
        assert (await look(store))[0].dead == (Entry("l", 50),)

    async def test_what_is_refused_again_has_the_new_reason_once(self, store: Store) -> None:
        await store.apply(buried(dead("k", {"a": 5}, X)))
        await store.apply(Commit((), (), (dead("k", {"a": 5}, X, why="still"),)))
        (kept,) = await store.dead("", 10)
        assert read_body(kept).letter.reason == "still"
        await store.apply(Commit((), (), (Receipt("k", LATER, DEAD),)))
        assert await store.dead("", 10) == [kept]
        assert len((await look(store))[0].dead) == 1

    async def test_all_that_is_dead_is_handed_out_in_pages(self, store: Store) -> None:
        receipts = [dead(f"k{number}", {"a": number, f"b{number}": 1}) for number in range(7)]
        await store.apply(buried(*receipts))
        await store.apply(commit(("a", 1), keys=("k3x",)))
        found: list[Receipt] = []
        while len(found) <= len(receipts) and (page := await store.dead(found[-1].key if found else "", 3)):
            assert len(page) <= 3
            found += page
        assert found == [one._replace(expires=NEVER) for one in receipts]

    async def test_counters_of_dead_receipts_are_named_though_they_have_no_config(self, store: Store) -> None:
        names = ["a", "a b", "ab", "a\ufffd", "a\U0001f600", "b"]
        await store.apply(commit(("ac", 1)))
        await store.apply(buried(dead("k", dict.fromkeys(names[:4], 1)), dead("l", dict.fromkeys(names[3:], 1))))
        assert [*await store.dead_names("", "", 10)] == names
        assert [*await store.dead_names("a", "", 10)] == names[:-1]
        assert [*await store.dead_names("a", "a b", 2)] == names[2:4]
        assert [*await store.dead_names("", "b", 10)] == []
        assert [*await store.names("", "", 10)] == ["ac"]

    async def test_an_existing_receipt_buries_nothing(self, store: Store) -> None:
        await store.apply(commit(("a", 5), keys=("k",)))
        for late in (buried(dead("k", {"a": 5})), Commit((), (), (dead("k", {"a": 5}),))):
            with pytest.raises(AlreadyAppliedError):
                await store.apply(late)
        assert (await look(store))[0]._replace(updated=0) == Total(5, 1, await guard(store))

    async def test_the_largest_part_is_kept_whole(self, store: Store) -> None:
        names = [f"{number:04}" + "\N{SNOWMAN}" * 132 for number in range(1_000)]
        keyed = tuple(Increment(name, -(2**52), receipt=f"i{number:064}") for number, name in enumerate(names))
        await store.apply(buried(dead("k", {}, *keyed)))
        assert (await look(store, names[999]))[0].dead == (Entry("k", 0, ((keyed[999].key, -(2**52)),)),)
        (kept,) = await store.dead("", 10)
        assert sorted(read_body(kept).envelope.keyed) == sorted(keyed)

    async def test_sets_and_burials_do_not_take_each_other_away(self, store: Store) -> None:
        await store.apply(setting("first", 5, await guard(store)))
        await store.apply(buried(dead("k", {"a": 1})))
        await store.apply(setting("second", 5, await guard(store), deleted=True))
        assert len((await look(store))[0].dead) == 1
        seen = await guard(store)
        assert seen.deleted
        for number in range(3):
            await store.apply(buried(dead(f"again{number}", {"a": 1})))
        assert await guard(store) == seen, "a set has to begin anew for each dead letter"
        await store.apply(setting("third", 5, seen))
        assert len((await look(store))[0].dead) == 4

    async def test_burials_and_sets_at_once_all_happen(self, store: Store) -> None:
        seen = await guard(store)
        burials = [buried(dead(f"k{number}", {"a": 1, "b": 1})) for number in range(8)]
        outcomes = await asyncio.gather(
            *map(store.apply, burials), store.apply(setting("set", 5, seen)), return_exceptions=True
        )
        assert all(isinstance(one, int) for one in outcomes[:8]), outcomes
        for counter in "ab":
            assert len((await look(store, counter))[0].dead) == 8
