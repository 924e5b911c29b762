"""The SQLite file, also with ids of clients as receipts, which it keeps apart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from shared.model.buckets import NEVER, Instant, StoreMillis
from shared.model.errors import AlreadyAppliedError, GoneError, LateError, RefusedError
from shared.model.receipts import key_of_envelope, key_of_increment
from shared.model.words import Bounds, Commit, Envelope, Message, Receipt, Receipts
from shared.ports.overlay import Overlay
from shared.ports.store import Store
from shared.sqlite import broker as broker_module
from shared.sqlite.broker import (
    SqliteDeadLetters,
    SqliteOverlay,
    SqlitePublisher,
    SqliteSubscription,
    raise_floors,
    weight_of,
)
from shared.sqlite.buckets import SqliteArrivals
from shared.sqlite.database import KEPT, Database
from shared.sqlite.snapshot import SqliteSnapshot
from shared.sqlite.store import SqliteStore
from shared.wire.codec import decode, encode
from tests.contracts.arrivals import ArrivalsContract, Arriving
from tests.contracts.broker import Broker, BrokerContract, pull_all, tokens, turning
from tests.contracts.finding import RankedContract, SearchContract
from tests.contracts.guards import GuardContract
from tests.contracts.leases import LeaseContract, OnceContract
from tests.contracts.letters import Buried, LettersContract, LettersOfOverlayContract, bury, through
from tests.contracts.marks import MarkContract
from tests.contracts.overlay import KEYED, PLAIN, Accepted, OverlayContract, ack_all, entries, publish, pull, view
from tests.contracts.removals import RemovalContract
from tests.contracts.snapshots import SnapshotContract
from tests.contracts.store import LATER, StoreContract, commit, total
from tests.contracts.suites import StoreSuites
from tests.world.manual_clock import ManualClock

ROOM = 10**7


def counted(database: Database) -> tuple[int, int]:
    """What is pending as the file counts it, and as it should."""
    (weight,) = database.reader().execute("SELECT bytes FROM broker").fetchone()
    there = database.reader().execute("SELECT data, attributes FROM messages").fetchall()
    return weight, sum(weight_of(*one) for one in there)


async def swept(store: Store, now: StoreMillis) -> int:
    """Sweep until nothing is left to do, and return how much it was."""
    number = 0
    for _ in range(4):  # the generations may turn once without a deletion
        while some := await store.sweep(now, 10):
            assert some <= 10
            number += some
    return number


class TestSqliteBroker(BrokerContract, LeaseContract, OnceContract):
    @pytest.fixture
    async def broker(self, database: Database, another: Database) -> Broker:
        clock = ManualClock()

        async def buried() -> list[tuple[bytes, str]]:
            rows = database.reader().execute("SELECT data, buried FROM messages WHERE buried IS NOT NULL")
            return rows.fetchall()

        return Broker(
            SqlitePublisher(database, clock, ROOM),
            SqliteSubscription(database, clock, 60),
            SqliteSubscription(another, clock, 60),
            turning(clock, 61),
            buried,
            SqlitePublisher(another, clock, 2_000),
            turning(clock, 59),
        )

    async def test_bytes_are_counted_right_over_a_life(self, broker: Broker, database: Database) -> None:
        """What is dropped as a duplicate is not counted, what is acknowledged not any more."""
        same = encode(Envelope("key-1", {"a": 1}, {}, (), 1, retried=True))
        await broker.publisher.publish([same, same, encode(PLAIN)])
        bytes_, there = counted(database)
        assert bytes_ == there > 0
        await broker.subscription.ack(tokens(await pull_all(broker.subscription, 2)), floor=Instant(1))
        assert counted(database) == (0, 0)

    async def test_a_lease_by_a_clock_that_was_set_back_holds_nobody_up(self, database: Database) -> None:
        """Whoever took it may be gone, and the time at which it ends is days ahead."""
        clock = ManualClock()
        publisher, subscription = SqlitePublisher(database, clock, ROOM), SqliteSubscription(database, clock, 60)
        await publisher.publish([encode(PLAIN)])
        (first,) = await pull_all(subscription, 1)
        clock.turn(-300)
        assert await subscription.pull(1, 1_000, 0) == ()
        clock.turn(-86_400)
        (again,) = await pull_all(subscription, 1)
        assert (again.message_id, again.attempt) == (first.message_id, 2)
        assert await subscription.pull(1, 1_000, 0) == ()


class TestSqliteArrivals(ArrivalsContract):
    @pytest.fixture
    async def arriving(self, database: Database) -> Arriving:
        return Arriving(SqliteStore(database, ManualClock()), SqliteArrivals(database))


class TestSqliteDeadLetters(LettersContract, LettersOfOverlayContract):
    @pytest.fixture
    async def buried(self, database: Database, another: Database) -> Buried:
        clock = ManualClock()
        return Buried(
            SqlitePublisher(database, clock, ROOM),
            SqliteSubscription(database, clock, 60),
            lambda: SqliteDeadLetters(another),
            SqliteOverlay(database, "topic"),
        )

    async def test_bytes_that_wait_are_counted_right(self, buried: Buried, database: Database) -> None:
        """What is buried does not wait, and is not taken off a second time when it is forgotten."""
        await bury(buried, encode(PLAIN))
        await buried.publisher.publish([encode(KEYED)])
        letters = buried.letters()
        (letter,) = await through(letters)
        await letters.ack([letter.delivery.token], floor=Instant(1))
        bytes_, there = counted(database)
        assert bytes_ == there > 0


class TestSqliteStore(StoreSuites, RankedContract, SearchContract):
    @pytest.fixture
    async def store(self, database: Database) -> SqliteStore:
        return SqliteStore(database, ManualClock())

    async def test_a_sweep_spares_receipts_of_messages_that_are_still_there(
        self, store: SqliteStore, database: Database
    ) -> None:
        """Messages do not expire in this broker. One that was applied and not acknowledged comes again, one that was
        buried may be replayed, and one that waits may hold an id that was applied long ago, whatever clocks say.
        """
        clock, late = ManualClock(), 10**9
        publisher, subscription = SqlitePublisher(database, clock, ROOM), SqliteSubscription(database, clock, 60)
        await store.apply(Commit((Receipt("before", StoreMillis(600_000)), Receipt("after", StoreMillis(800_000))), ()))
        clock.turn(700)
        await publisher.publish([encode(PLAIN), encode(KEYED)])
        clock.turn(10_000)
        assert await store.sweep(StoreMillis(late), 10) == 1
        assert set((await store.receipts(["before", "after"])).found) == {"after"}
        leased = await pull_all(subscription, 2)
        assert await store.sweep(StoreMillis(late), 10) == 0
        clock.turn(100)
        assert len(await pull_all(subscription, 2)) == 2
        await subscription.ack([f"{leased[0].message_id}.2"], floor=Instant(1))
        await subscription.bury(replace(leased[1], token=f"{leased[1].message_id}.2"), "no")
        assert await store.sweep(StoreMillis(late), 10) == 0
        letters = SqliteDeadLetters(database)
        await letters.ack([letter.delivery.token for letter in await letters.pull(1, 10**6)], floor=Instant(1))
        assert await store.sweep(StoreMillis(late), 10) == 1

    async def test_a_sweep_spares_ids_that_messages_may_hold(self, store: SqliteStore, database: Database) -> None:
        """Like other receipts, however old the oldest message becomes."""
        clock, late = ManualClock(), StoreMillis(10**9)
        publisher, subscription = SqlitePublisher(database, clock, ROOM), SqliteSubscription(database, clock, 60)
        one, two, three = [key_of_increment("a", id_) for id_ in "123"]
        await store.apply(Commit((Receipt(one, StoreMillis(800_000)),), ()))
        clock.turn(700)
        await publisher.publish([encode(KEYED)])
        clock.turn(10_000)
        await swept(store, late)
        assert set((await store.receipts([one])).found) == {one}
        await store.apply(Commit((Receipt(two, StoreMillis(810_000)),), ()))
        await swept(store, late)
        assert set((await store.receipts([one, two])).found) == {one, two}
        await subscription.ack(tokens(await pull_all(subscription, 1)), floor=Instant(1))
        await swept(store, late)
        await store.apply(Commit((Receipt(three, StoreMillis(2 * 10**9)),), ()))
        await swept(store, late)
        assert set((await store.receipts([one, two, three])).found) == {three}

    async def test_the_time_of_a_file_passes_while_a_process_watches_and_never_by_a_wall_clock(
        self, database: Database, another: Database
    ) -> None:
        clock, other = ManualClock(), ManualClock()
        store, late = SqliteStore(database, clock), SqliteStore(another, other)
        begun = await store.now()
        clock.turn(100)
        assert await store.now() == begun + 100_000
        assert await late.now() < begun + 100_000
        await store.apply(commit(keys=("k",)))
        assert begun + 100_000 <= await late.now() < begun + 101_000
        other.turn(50)
        assert await late.now() >= begun + 150_000
        assert await store.now() == begun + 100_000
        await late.sweep(NEVER, 1)
        assert await store.now() == begun + 100_000
        other.turn(KEPT / 1_000)
        await late.sweep(NEVER, 1)
        assert await store.now() >= begun + 150_000 + KEPT

    async def test_a_commit_is_refused_when_it_is_late_or_its_message_is_gone(self, database: Database) -> None:
        clock = ManualClock()
        store, subscription = SqliteStore(database, clock), SqliteSubscription(database, clock, 60)
        now = await store.now()
        await store.apply(replace(commit(keys=("k",)), bounds=Bounds(now)))
        clock.turn(1)
        with pytest.raises(LateError) as late:
            await store.apply(replace(commit(keys=("l",)), bounds=Bounds(now)))
        assert late.value.reached == now + 1_000
        await SqlitePublisher(database, clock, ROOM).publish([encode(PLAIN), encode(KEYED)])
        one, two = await pull_all(subscription, 2)
        there = Bounds(messages=(one.message_id, two.message_id))
        await store.apply(replace(commit(keys=("m",)), bounds=there))
        await subscription.ack([one.token], floor=Instant(1))
        with pytest.raises(GoneError) as gone:
            await store.apply(replace(commit(keys=("n",)), bounds=there))
        assert set(gone.value.messages) == {one.message_id}
        assert set((await store.receipts(["k", "l", "m", "n"])).found) == {"k", "m"}

    async def test_what_a_check_of_the_file_forbids_is_refused_for_good(
        self, store: SqliteStore, database: Database
    ) -> None:
        """It would be tried again for ever, and hold up all others."""
        await database.write(
            lambda db: db.execute(
                "CREATE TRIGGER none_of_these BEFORE INSERT ON shards WHEN NEW.counter = 'these'"
                " BEGIN SELECT RAISE(ABORT, 'none of these'); END"
            )
        )
        with pytest.raises(RefusedError, match="none of these"):
            await store.apply(commit(("others", 1), ("these", 1), keys=("k",)))
        assert not (await store.receipts(["k"])).found
        assert await total(store, "others") == 0

    async def test_snapshots_open_no_more_connections_than_there_are_at_once(
        self, store: SqliteStore, database: Database
    ) -> None:
        async with store.snapshot(), store.snapshot():
            there = len(database._readers)
        for _ in range(20):
            async with store.snapshot() as outer, store.snapshot() as inner:
                assert outer.time == inner.time
        assert len(database._readers) == there


class TestSqliteStoreOfTwoProcesses(StoreSuites):
    """Each call through another of them in turn."""

    @pytest.fixture
    async def store(self, database: Database, another: Database) -> SqliteStore:
        stores = [SqliteStore(database, ManualClock()), SqliteStore(another, ManualClock())]

        class InTurn:
            def __getattr__(self, name: str) -> object:
                stores.reverse()
                return getattr(stores[0], name)

        return InTurn()  # type: ignore[return-value] # it is, in turn


class TestSqliteOverlay(OverlayContract):
    @pytest.fixture
    async def accepted(self, database: Database, another: Database) -> Accepted:
        clock = ManualClock()

        async def restarted() -> Overlay:
            return SqliteOverlay(another, "topic")

        async def changed(counters: Sequence[str], time: Instant) -> None:
            await database.write(lambda db: raise_floors(db, counters, time))

        return Accepted(
            SqlitePublisher(database, clock, ROOM),
            SqliteSubscription(database, clock, 60),
            SqliteOverlay(database, "topic"),
            SqliteOverlay(another, "topic"),
            restarted,
            changed,
        )

    async def test_who_fell_behind_the_log_of_acks_begins_anew(
        self, accepted: Accepted, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broker_module, "ACKS_KEPT", 2)
        await publish(accepted, PLAIN)
        assert len(await entries(accepted.elsewhere, "a")) == 1
        for floor in range(1, 8):
            await ack_all(accepted, Instant(floor))
            await publish(accepted, PLAIN)
        assert len(await entries(accepted.elsewhere, "a")) == 1
        assert (await view(accepted.elsewhere, "a")).floor == 7
        assert database.reader().execute("SELECT count(*) FROM acks").fetchone() == (2,)

    async def test_messages_without_an_id_are_called_as_the_flusher_calls_them(self, accepted: Accepted) -> None:
        await accepted.publisher.publish([Message(b'{"counter":"a"}')])
        (held,) = await pull(accepted)
        (envelope,) = decode(held, "topic")
        assert [entry.key for entry in await entries(accepted.overlay, "a")] == [envelope.key]

    async def test_a_catching_up_that_is_cancelled_is_finished_by_the_next_look(
        self, accepted: Accepted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In each slice of it: nothing is missed, nothing is there twice, and others wait for all of it."""
        monkeypatch.setattr(broker_module, "READ_AT_ONCE", 2)
        late = await accepted.restarted()
        for number in range(7):
            await publish(accepted, Envelope(f"e{number}", {"a": 1}))
        for slices in range(1, 4):
            look = asyncio.create_task(view(late, "a"))
            for _ in range(slices):
                await asyncio.sleep(0)
            look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await look
        first, second = await asyncio.gather(entries(late, "a"), entries(late, "a"))
        assert first == second
        assert [entry.key for entry in first] == [key_of_envelope(f"e{number}") for number in range(7)]
        await ack_all(accepted, floor=Instant(3))
        assert await entries(late, "a") == ()
        assert (await view(late, "a")).floor >= 3


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
