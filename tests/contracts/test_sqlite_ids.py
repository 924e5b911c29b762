"""The SQLite file with ids of clients as receipts, which it keeps apart: every suite that writes receipts."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from shared.model.buckets import Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError
from shared.model.words import Commit, Receipt, Receipts
from shared.ports.store import Store
from shared.sqlite.database import Database
from shared.sqlite.snapshot import SqliteSnapshot
from shared.sqlite.store import SqliteStore
from tests.contracts.guards import GuardContract
from tests.contracts.marks import MarkContract
from tests.contracts.removals import RemovalContract
from tests.contracts.snapshots import SnapshotContract
from tests.contracts.store import LATER, StoreContract, commit
from tests.world.manual_clock import ManualClock


def key_of(name: str) -> str:
    """A key as that of an id. Its hash is the name."""
    assert len(name.encode()) <= 16
    return "i" + name.encode().hex().ljust(32, "0")


def name_of(key: str) -> str:
    return bytes.fromhex(key[1:]).rstrip(b"\0").decode()


class StoreOfIds(SqliteStore):
    """Uses the key of an id instead of each key that it is given."""

    async def apply(self, commit: Commit) -> Instant:
        receipts, revived = [
            tuple(one._replace(key=key_of(one.key)) for one in some) for some in (commit.receipts, commit.revived)
        ]
        return await super().apply(replace(commit, receipts=receipts, revived=revived))

    async def receipts(self, keys: Collection[str]) -> Receipts:
        time, found = await super().receipts([key_of(name) for name in keys])
        return Receipts(time, {name_of(key): one._replace(key=name_of(key)) for key, one in found.items()})

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqliteSnapshot]:
        async with super().snapshot() as one:
            yield SnapshotOfIds(one.db, one.time, one.as_of, one.now)


class SnapshotOfIds(SqliteSnapshot):
    async def read(self, counters: Sequence[str], keys: Collection[str]) -> tuple[Any, Collection[str]]:
        totals, settled = await super().read(counters, [key_of(name) for name in keys])
        return totals, {name_of(key) for key in settled}


class TestSqliteStoreOfIds(StoreContract, SnapshotContract, GuardContract, RemovalContract, MarkContract):
    @pytest.fixture
    async def store(self, database: Database) -> StoreOfIds:
        return StoreOfIds(database, ManualClock())

    async def test_receipts_are_found_by_what_their_keys_start_with(self, store: Store) -> None:
        """Those of ids are not."""
        await store.apply(commit(keys=("a",)))
        assert await store.receipts_from("i", "", 10) == []

    async def test_a_late_sweep_leaves_a_receipt_that_was_made_anew(self, store: Store) -> None:
        """It can't be made anew: the first one is there until its generation has expired."""
        await store.apply(Commit((Receipt("again", StoreMillis(1_000)),), ()))
        assert await store.sweep(StoreMillis(2_000), 10) == 0
        assert [*(await store.receipts(["again"])).found] == ["again"]

    async def test_a_sweep_deletes_receipts_that_have_expired_and_no_others(self, store: Store) -> None:
        """Together with all others of their generation, and not before the last of them has expired."""
        await store.apply(Commit(tuple(Receipt(f"old{number}", StoreMillis(1_000)) for number in range(3)), ()))
        assert await store.sweep(StoreMillis(1_000), 10) == 0
        await store.apply(commit(keys=("young",)))
        assert await store.sweep(StoreMillis(1_001), 2) == 2
        assert await store.sweep(StoreMillis(1_001), 10) == 1
        assert set((await store.receipts(["old0", "old1", "old2", "young"])).found) == {"young"}

    @pytest.mark.parametrize("notes", [(b"{}", b""), (b"", b"{}")])
    async def test_an_id_that_has_something_to_say_is_known_like_others(
        self, store: Store, notes: tuple[bytes, bytes]
    ) -> None:
        """It is in another table."""
        first, second = [Receipt("k", LATER, "applied", note) for note in notes]
        await store.apply(Commit((first,), ()))
        for again in (first, second):
            with pytest.raises(AlreadyAppliedError):
                await store.apply(Commit((Receipt("new", LATER), again), ()))
        assert (await store.receipts(["k", "new"])).found == {"k": first}
