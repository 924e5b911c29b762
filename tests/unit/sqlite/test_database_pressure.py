"""The SQLite file under load: when to retry, how long its log gets, what waits, how much of the disk stays free."""

import asyncio
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flusher.flush.window import MOST_IN_COMMIT_OF_FILE
from shared.model.buckets import Instant
from shared.model.errors import OverloadedError, StorageFullError
from shared.model.imports import Mark
from shared.model.words import Commit, Message, ShardAdd
from shared.sqlite import data_file as log
from shared.sqlite import database as module
from shared.sqlite.broker import _INSERT, SqlitePublisher, SqliteSubscription, weight_of
from shared.sqlite.database import GROWTH, LARGEST_LOG, LOG_GROWTH, Database, Reserve, connect_to
from shared.sqlite.schema import ACCOUNTS, make_tables
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

MESSAGE = Message(bytes(98))
"""With its attributes 100 bytes."""


MIB = 2**20


def check(reserve: Reserve, pending: int) -> None:
    """Of a file with nothing in its log."""
    with closing(sqlite3.connect(":memory:")) as db:
        reserve.check(db, pending)


class Disk:
    """Of a size that the test says, as the system tells it."""

    def __init__(self, size: int, free: int, block: int = 4096) -> None:
        self.size, self.free, self.block = size, free, block
        self.looks = 0

    def look(self, folder: Path) -> os.statvfs_result:
        assert folder == Path("/data")
        self.looks += 1
        blocks, free = self.size // self.block, self.free // self.block
        return os.statvfs_result((4096, self.block, blocks, free + 10, free, 0, 0, 0, 0, 255))

    def reserve(self, least: int, *, applied: bool = True) -> Reserve:
        return Reserve(Path("/data/file.db"), least, applied=applied, look=self.look)

    def takes(self, reserve: Reserve, pending: int = 0) -> bool:
        try:
            check(reserve, pending)
        except StorageFullError:
            return False
        return True


async def refused(publisher: SqlitePublisher) -> float:
    """When to come back."""
    with pytest.raises(OverloadedError) as error:
        await publisher.publish([MESSAGE] * 10)
    return error.value.retry_after


async def test_a_refusal_says_when_the_flushers_will_have_made_room(database: Database) -> None:
    clock = ManualClock()
    publisher = SqlitePublisher(database, clock, 10_000)
    subscription = SqliteSubscription(database, clock, 600.0)
    await publisher.publish([MESSAGE] * 100)
    assert await refused(publisher) == 1
    clock.turn(8)
    assert await refused(publisher) == 8, "nothing goes"
    clock.turn(2)
    deliveries = await subscription.pull(5, 10**6, 0)
    await subscription.ack([delivery.token for delivery in deliveries], Instant(1))
    # 500 bytes went in 10 s, the first 8 of them a little forgotten; 1,500 are to go.
    assert 25 < await refused(publisher) < 30
    clock.turn(1)
    deliveries = await subscription.pull(30, 10**6, 0)
    await subscription.ack([delivery.token for delivery in deliveries], Instant(1))
    with pytest.raises(OverloadedError) as error:
        await publisher.publish([MESSAGE] * 40)
    assert 1 <= error.value.retry_after < 10
    await publisher.publish([MESSAGE] * 10)


@given(
    data=st.lists(st.sampled_from([b'"', b"\0", b"\xc3\xa4", b"\xff", b"\xc3", b"a", b"'"])).map(b"".join),
    text=st.text(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_file_weighs_what_is_published_as_we_do(tmp_path: Path, data: bytes, text: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_tables(db, tmp_path)
        db.execute(ACCOUNTS)
        attributes = orjson.dumps({"a": text}).decode()
        for taken in (1, 0):
            assert db.execute(_INSERT, (data, attributes, 0, "once", 7, 0)).rowcount == taken
        weight = weight_of(data, attributes)
        assert db.execute("SELECT bytes, increments, taken FROM broker").fetchone() == (weight, 7, 7)


async def test_what_another_process_has_published_counts_at_once(database: Database) -> None:
    other = Database(database.path)
    own, its = (SqlitePublisher(one, ManualClock(), 1_000) for one in (database, other))
    await own.publish([MESSAGE])
    await its.publish([MESSAGE] * 8)
    await own.publish([MESSAGE])
    for publisher in (own, its):
        with pytest.raises(OverloadedError):
            await publisher.publish([MESSAGE])
    await other.close()


async def test_as_much_is_taken_on_a_small_disk_as_if_it_was_looked_at_each_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(2**40, 1 + 50 * 100 * (module.GROWTH + module.LOG_GROWTH), block=1)
    monkeypatch.setattr(Reserve, "_in_the_log", lambda *_: 0)
    database.reserve = disk.reserve(1)
    publisher = SqlitePublisher(database, ManualClock(), 100_000)
    for _ in range(50):
        await publisher.publish([MESSAGE])
    assert disk.looks == 1
    with pytest.raises(StorageFullError):
        await publisher.publish([MESSAGE])


async def test_on_a_disk_that_is_nearly_full_nothing_new_is_written(database: Database) -> None:
    disk = Disk(2**40, 0)
    database.reserve = disk.reserve(1)
    publisher = SqlitePublisher(database, ManualClock(), 10_000)
    store = SqliteStore(database, ManualClock())
    addition = Commit((), (ShardAdd("b", 0, 5, 1),), marks=(Mark("there", "b", 0, 5),))
    for refused in (publisher.publish([MESSAGE]), publisher.check(), store.raise_shards("a", 3), store.apply(addition)):
        with pytest.raises(StorageFullError, match="nearly full"):
            await refused
    disk.free = 2**30
    await publisher.publish([MESSAGE])
    await publisher.check()
    assert await store.raise_shards("a", 3) == 3
    await store.apply(addition)
    assert await store.marks("there", ["b"]) == {"b": 5}


async def test_readers_that_follow_one_another_do_not_let_the_log_grow_for_ever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LONGEST_LOG", 600_000)
    monkeypatch.setattr(log, "LOOK_AT_LOG", 0.0)
    monkeypatch.setattr(log, "PAUSE_OF_LOG", 0.0)
    await database.write(lambda db: db.execute("CREATE TABLE t (a)"))
    await database.write(lambda db: db.execute("INSERT INTO t VALUES (randomblob(200000))"))
    longest = 0

    def length() -> int:
        return Path(f"{database.path}-wal").stat().st_size

    readers: list[sqlite3.Connection] = []
    for _ in range(40):
        readers.append(database.reader())
        readers[-1].execute("BEGIN")
        readers[-1].execute("SELECT count(*) FROM t").fetchone()
        if len(readers) == 2:  # there is always one of them
            readers.pop(0).execute("ROLLBACK")
        await database.write(lambda db: db.execute("UPDATE t SET a = randomblob(200000)"))
        longest = max(longest, length())
    for reader in readers:
        reader.execute("ROLLBACK")
    await database.write(lambda db: db.execute("UPDATE t SET a = randomblob(200000)"))
    await database.write(lambda db: db.execute("UPDATE t SET a = randomblob(200000)"))
    assert longest > 600_000
    assert length() < 600_000


async def test_no_more_than_so_much_waits_for_a_writer_that_is_stuck(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_ORDERS", 5)
    go, reached = threading.Event(), threading.Event()

    def stick(_: sqlite3.Connection) -> None:
        reached.set()
        go.wait(60)

    waiting = [asyncio.ensure_future(database.write(stick))]
    await asyncio.to_thread(reached.wait, 60)
    waiting += [asyncio.ensure_future(database.write(lambda _: None)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="disk stuck"):
        await database.write(lambda _: None)
    go.set()
    await asyncio.gather(*waiting)
    await database.write(lambda _: None)


def test_below_the_reserve_nothing_is_taken_and_it_goes_on_when_there_is_room() -> None:
    disk = Disk(1_000 * MIB, 64 * MIB)
    reserve = disk.reserve(64 * MIB)
    assert disk.takes(reserve)
    disk.free -= 4096
    assert not disk.takes(reserve)
    disk.free += 4096
    assert disk.takes(reserve)


def test_the_room_for_the_log_is_enough_for_the_largest_commit_of_a_flusher() -> None:
    """In a large file, each id is in a page of its own. SQLite starts the log again at 4 MiB, before such a commit."""
    assert LARGEST_LOG > 4 * MIB + MOST_IN_COMMIT_OF_FILE * 4096


def test_of_a_small_disk_a_tenth_is_kept() -> None:
    disk = Disk(10 * MIB, MIB)
    assert disk.takes(disk.reserve(64 * MIB))
    disk.free -= 4096
    assert not disk.takes(disk.reserve(64 * MIB))
    assert disk.takes(disk.reserve(0))


def test_what_is_pending_needs_room_to_be_applied() -> None:
    """Of the spool nothing is applied here."""
    large, small = Disk(1_000 * MIB, (64 + 10 * GROWTH) * MIB), Disk(100 * MIB, (GROWTH + LOG_GROWTH) * MIB)
    for disk, most in ((large, 10 * MIB), (small, MIB)):
        assert disk.takes(disk.reserve(64 * MIB), most)
        assert not disk.takes(disk.reserve(64 * MIB), most + 1)
    assert large.takes(large.reserve(64 * MIB, applied=False), 10 * GROWTH * MIB)
    assert not large.takes(large.reserve(64 * MIB, applied=False), 10 * GROWTH * MIB + 1)


def test_what_lies_in_the_log_needs_room_in_the_file_until_it_is_there(tmp_path: Path) -> None:
    """The log keeps its length afterwards: on a small disk, nothing would be taken any more if that counted."""
    free = 64 * MIB
    reserve = Reserve(
        tmp_path / "file.db", free, look=lambda _: os.statvfs_result((1, 1, 1_000 * MIB, free, free, 0, 0, 0, 0, 255))
    )
    with closing(connect_to(tmp_path / "file.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE rows (data)")
        db.execute("INSERT INTO rows VALUES (zeroblob(1000000))")
        with pytest.raises(StorageFullError):
            reserve.check(db, 0)
        free += MIB
        reserve.check(db, 0)
        free -= MIB
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        assert (tmp_path / "file.db-wal").stat().st_size > MIB // 2
        reserve.check(db, 0)


def test_a_folder_that_is_gone_is_somebody_elses_news(tmp_path: Path) -> None:
    check(Reserve(tmp_path / "gone" / "file.db", 2**40), 0)


def test_this_disk_can_be_looked_at(tmp_path: Path) -> None:
    check(Reserve(tmp_path / "file.db", 0), 1)
    with pytest.raises(StorageFullError):
        check(Reserve(tmp_path / "file.db", 0), 2**60)
