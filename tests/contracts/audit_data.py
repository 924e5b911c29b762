"""The contract of a store's data: all that it holds, and nothing that it does not."""

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from shared.model.buckets import DAY, HOUR, StoreMillis
from shared.model.receipts import Tally, notes_of_commit
from shared.model.words import Commit, Receipt, ShardAdd
from shared.ports.store import BucketShard, Config, Shard, Store, StoredReceipt
from tests.contracts.by_time import KEPT, adding
from tests.contracts.store import LATER, commit

T = TypeVar("T")


async def of(pages: AsyncIterator[Sequence[T]]) -> list[T]:
    return [one async for page in pages for one in page]


async def data(store: Store) -> tuple[list[StoredReceipt], list[Config], list[Shard]]:
    async with store.audit_data() as opened:
        return await of(opened.receipts()), await of(opened.configs()), await of(opened.shards())


async def buckets(store: Store) -> list[BucketShard]:
    async with store.audit_data() as opened:
        return await of(opened.buckets())


def noted(counter: str, delta: int, key: str, expires: StoreMillis = LATER, shard: int = 0) -> Commit:
    (note,) = notes_of_commit([""], key, Tally(applied=1), {counter: delta})
    return Commit((Receipt(key, expires, "applied", note),), (ShardAdd(counter, shard, delta, shard + 1),))


class AuditDataContract:
    """Inherit it beside `StoreContract`."""

    async def test_the_books_of_nothing_are_empty(self, store: Store) -> None:
        assert await data(store) == ([], [], [])

    async def test_receipts_keep_what_they_say(self, store: Store) -> None:
        said = [b"", b"{}", bytes(range(256)), b"x" * 100_000]
        receipts = {f"k{number}": Receipt(f"k{number}", LATER, "applied", note) for number, note in enumerate(said)}
        await store.apply(Commit((*receipts.values(),), ()))
        assert (await store.receipts(receipts)).found == receipts
        kept, _, _ = await data(store)
        assert [one.receipt for one in kept] == [*receipts.values()]

    async def test_all_is_there_once_in_order(self, store: Store) -> None:
        """More than fit into a page."""
        names = [f"counter-{number}-{'x' * (number % 7)}" for number in range(1_100)]
        for begin in range(0, 1_100, 550):
            some = names[begin : begin + 550]
            await store.apply(commit(*((name, 2) for name in some), keys=tuple(f"r-{name}" for name in some)))
        await store.apply(commit(ShardAdd(names[0], 6, 5, 7)))
        await store.raise_shards("only a config", 3)
        kept, configs, shards = await data(store)
        keys = [one.receipt.key for one in kept]
        assert keys == sorted(keys)
        assert {key for key in keys if key.startswith("r-")} == {f"r-{name}" for name in names}
        assert len(keys) == 1_101
        numbers = dict.fromkeys(names, 1) | {names[0]: 7, "only a config": 3}
        assert {config.counter: config.num_shards for config in configs} == numbers
        assert len(configs) == len(numbers)
        wanted = {(name, 0): 2 for name in names} | {(names[0], 6): 5}
        assert {(shard.counter, shard.number): shard.held for shard in shards} == wanted
        assert len(shards) == len(wanted)

    async def test_the_time_of_a_receipt_is_that_of_its_commit(self, store: Store) -> None:
        times = [await store.apply(noted("a", 1, key)) for key in ("k1", "k2")]
        kept, configs, shards = await data(store)
        assert [one.time for one in kept] == times
        assert [shard.written for shard in shards] in ([0], [times[-1]])
        assert all(config.since is None or 0 <= config.since < 10**10 for config in configs)

    async def test_they_are_of_one_instant(self, store: Store) -> None:
        await store.apply(noted("a", 1, "k1"))
        async with store.audit_data() as opened:
            await of(opened.receipts())
            await store.apply(noted("a", 10, "k2"))
            shards, kept = await of(opened.shards()), await of(opened.receipts())
            assert ([shard.held for shard in shards], [one.receipt.key for one in kept]) == ([1], ["k1"])
            totals, settled = await opened.snapshot.read(["a"], ["k1", "k2"])
            assert (totals["a"].value, settled) == (1, {"k1"})

    async def test_what_was_applied_before_is_there(self, store: Store) -> None:
        for number in range(10):
            await store.apply(noted("a", 1, f"k{number}"))
            kept, _, shards = await data(store)
            assert (len(kept), [shard.held for shard in shards]) == (number + 1, [number + 1])

    async def test_what_swept_receipts_said_is_carried_on_or_said_to_be_missing(self, store: Store) -> None:
        for number in range(6):
            await store.apply(noted("a", -(2**61), f"old{number}", StoreMillis(1_000), number))
            await store.apply(noted("b", 2**40 + number, f"older{number}", StoreMillis(1_000)))
            if number % 2:
                while await store.sweep(StoreMillis(2_000), 3):
                    pass
        kept, configs, shards = await data(store)
        assert kept == []
        held = dict.fromkeys("ab", 0)
        for shard in shards:
            held[shard.counter] += shard.held
        assert held["a"] == 6 * -(2**61)
        for config in configs:
            assert config.since is not None or config.carried == held[config.counter]

    async def test_a_receipt_that_is_revived_without_a_note_keeps_its_own(self, store: Store) -> None:
        keys = ("k1", "k2")
        await store.apply(Commit(tuple(Receipt(key, LATER, "dead", b"dead") for key in keys), ()))
        await store.apply(Commit((), (), (Receipt("k1", LATER, "dead"), Receipt("k2", LATER, "applied", b"new"))))
        kept, _, _ = await data(store)
        assert [one.receipt.note for one in kept] == [b"dead", b"new"]

    async def test_all_buckets_are_there(self, store: Store) -> None:
        """More than fit into a page, and into an entity."""
        async with store.audit_data() as opened:
            assert await of(opened.buckets()) == []
            assert not await opened.followed()
        names = [f"a-{number}" for number in range(120)]
        for name in names:
            await store.apply(adding((1, 5), (2, -7), (24, 9), counter=name))
        await store.apply(adding((1, 100), counter="a-1", shard=3))
        await store.apply(adding((24, 2**62), counter="a-1", by="day"))
        found = await buckets(store)
        assert not [one for one in found if one.flaw]
        held = sorted((*one.bucket, one.held) for one in found)
        wanted = [(name, "hour", hour * HOUR, delta) for name in names for hour, delta in ((1, 5), (2, -7), (24, 9))]
        assert held == sorted([*wanted, ("a-1", "hour", HOUR, 100), ("a-1", "day", DAY, 2**62)])

    async def test_buckets_are_of_the_instant_too(self, store: Store) -> None:
        await store.apply(adding((1, 1)))
        async with store.audit_data() as opened:
            await of(opened.receipts())
            await store.apply(adding((1, 10), (2, 1)))
            found = await of(opened.buckets())
            assert [one.held for one in found] == [1]

    async def test_it_knows_which_rules_were_followed(self, store: Store) -> None:
        await store.apply(adding((1, 1)))
        async with store.audit_data() as opened:
            (one,) = await opened.followed()
            assert one.rules == KEPT
            assert one.until > await store.now()
