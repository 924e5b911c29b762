"""The contract of finding out which envelopes are applied."""

import asyncio
from typing import Protocol

from shared.model.buckets import Instant
from shared.model.words import APPLIED, Commit, Receipt
from shared.ports.store import AppliedEnvelopes, Commits
from tests.contracts.store import LATER


class Findable(Commits, AppliedEnvelopes, Protocol):
    """A store that can find them."""


def receipts(*ids: str) -> Commit:
    return Commit(tuple([Receipt(f"key of {one}", LATER, APPLIED, envelope=one) for one in ids]), ())


class AppliedContract:
    """Inherit it beside `StoreContract`."""

    async def test_applied_envelopes_are_found_by_a_range_of_ids(self, store: Findable) -> None:
        await store.apply(receipts("a1", "a2", "a4"))
        await store.apply(receipts("a6", "a6b", "b"))
        await store.apply(Commit((Receipt("none", LATER),), ()))
        _, found = await store.applied("a2", "a6", 10)
        assert sorted(found) == ["key of a2", "key of a4", "key of a6"]
        _, none = await store.applied("a7", "az", 10)
        assert not [*none]

    async def test_at_most_so_many_are_found(self, store: Findable) -> None:
        await store.apply(receipts("a1", "a2", "a3"))
        _, found = await store.applied("a", "b", 2)
        assert len([*found]) <= 2

    async def test_what_is_found_was_applied_until_the_instant(self, store: Findable) -> None:
        """Else readers that began before would miss it in the store, and no longer find it pending."""
        times: dict[str, Instant] = {}

        async def apply() -> None:
            for number in range(200):
                times[f"key of e{number}"] = await store.apply(receipts(f"e{number}"))
                await asyncio.sleep(0)

        applying = asyncio.create_task(apply())
        while not applying.done():
            time, found = await store.applied("e", "f", 1_000)
            await asyncio.sleep(0)
            assert all(times[key] <= time for key in found if key in times)
        await applying
        time, found = await store.applied("e", "f", 1_000)
        assert set(found) == set(times)
        assert time >= max(times.values())

    async def test_a_revived_receipt_is_found(self, store: Findable) -> None:
        dead = Receipt("k", LATER, "dead")
        await store.apply(Commit((dead,), ()))
        _, none = await store.applied("e", "f", 10)
        assert not [*none]
        await store.apply(Commit((), (), revived=(Receipt("k", LATER, APPLIED, envelope="e1"),)))
        _, found = await store.applied("e", "f", 10)
        assert [*found] == ["k"]
