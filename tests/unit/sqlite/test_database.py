"""The SQLite file: what is refused, group commit, pages of names, what a process is told when it can't use it, and when
one that waits for messages looks at it: seldom if it is quiet, and at once after the process has written.
"""

import asyncio
import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from shared.model.buckets import NEVER, StoreMillis
from shared.model.errors import DamagedError, SettingsError, StorageFullError, TransientError
from shared.model.words import Commit, Message, Receipt, ShardAdd
from shared.sqlite import broker, schema
from shared.sqlite.audit_data import MOST_IN_PAGE
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription, weight_of
from shared.sqlite.data_file import DataFile
from shared.sqlite.database import Database, _prepare
from shared.sqlite.schema import FIRST
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

MESSAGE = Message(b'{"counter":"a"}')


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def test_a_page_of_large_receipts_is_short(store: SqliteStore) -> None:
    """An audit holds one page in memory."""
    note, count = b"x" * 400_000, 7
    for number in range(count):
        await store.apply(Commit((Receipt(f"e{number}", StoreMillis(1), "applied", note),), ()))
    async with store.audit_data() as data:
        pages = [[one.receipt.key for one in page] async for page in data.receipts()]
    assert [key for page in pages for key in page] == [f"e{number}" for number in range(count)]
    assert {len(page) * len(note) <= MOST_IN_PAGE + len(note) for page in pages} == {True}


def test_tables_that_can_not_all_be_made_are_not_made_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_TABLES", "CREATE TABLE one (a);\nCREATE TABLE one (a);")
    with closing(opened(tmp_path / "file")) as db:
        with pytest.raises(sqlite3.Error):
            schema.make_tables(db, tmp_path / "file")
        assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        assert db.execute("PRAGMA user_version").fetchone() == (0,)


async def test_a_file_from_before_the_first_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    await Database(path).close()
    with closing(opened(path)) as db:
        db.execute(f"PRAGMA user_version = {FIRST - 1}")
    with pytest.raises(SettingsError, match=f"has schema {FIRST - 1}.*export its totals with that build"):
        Database(path)
    with closing(opened(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FIRST - 1,)


def test_many_processes_that_make_the_file_at_once_can_all_use_it(tmp_path: Path) -> None:
    """All processes of a service start together."""
    for attempt in range(10):
        assert prepared_at_once(tmp_path / f"file{attempt}") == []


def prepared_at_once(path: Path) -> list[SettingsError]:
    """By six threads; the errors of those that could not."""
    start, errors = threading.Barrier(6), list[SettingsError]()

    def prepare() -> None:
        start.wait()
        try:
            _prepare(DataFile(path), makes=True)[0].close()
        except SettingsError as error:
            errors.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def files(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


@pytest.mark.parametrize("version", [0, FIRST])
async def test_another_programs_file_keeps_every_byte(tmp_path: Path, version: int) -> None:
    path = tmp_path / "theirs.db"
    with closing(opened(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
        db.execute(f"PRAGMA user_version = {version}")
    before = files(tmp_path)
    with pytest.raises(SettingsError, match="another program"):
        Database(path)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("text", r"not a database\. Was the file overwritten .* put a backup in its place\. Or name another folder"),
        ("text/data/countersink.db", r"can't make the folder .*/text/data: "),
        ("", r"can't use .* as the database: .* Choose a folder on a local disk"),
    ],
)
async def test_what_can_be_no_database_is_refused(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "text").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(SettingsError, match=why):
        Database(tmp_path / place)


async def test_each_of_a_group_gets_its_own_result_in_the_order_of_arrival(database: Database) -> None:
    order: list[int] = []

    def work(number: int) -> Callable[[sqlite3.Connection], int]:
        def run(db: sqlite3.Connection) -> int:
            order.append(number)
            return number

        return run

    assert await asyncio.gather(*(database.write(work(number)) for number in range(600))) == [*range(600)]
    assert order == [*range(600)]


async def test_what_was_ordered_is_done_before_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    database = Database(path)
    publisher = SqlitePublisher(database, ManualClock(), 10**6)
    waiting = [asyncio.ensure_future(publisher.publish([MESSAGE])) for _ in range(20)]
    await asyncio.sleep(0)
    await database.close()
    await asyncio.gather(*waiting)
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM messages").fetchone() == (20,)
    db.close()


async def test_one_that_fails_does_not_take_its_group_along(database: Database) -> None:
    def add(db: sqlite3.Connection) -> int:
        return db.execute("UPDATE store SET time = time + 1 RETURNING time").fetchone()[0]  # type: ignore[no-any-return]

    def fail(db: sqlite3.Connection) -> int:
        add(db)
        raise ValueError("mine")

    works = [fail if number % 5 == 0 else add for number in range(40)]
    outcomes = await asyncio.gather(*map(database.write, works), return_exceptions=True)
    assert [isinstance(outcome, ValueError) for outcome in outcomes] == [work is fail for work in works]
    assert sorted(outcome for outcome in outcomes if isinstance(outcome, int)) == list(range(1, 33))


async def test_a_cancelled_write_disturbs_no_other(database: Database) -> None:
    def add(db: sqlite3.Connection) -> None:
        db.execute("UPDATE store SET time = time + 1")

    waiting = [asyncio.ensure_future(database.write(add)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    assert await asyncio.gather(*waiting[1::2]) == [None] * 5


async def test_a_full_disk_takes_nothing_of_what_was_published_and_a_check_says_so_until_there_is_room_again(
    database: Database, publisher: SqlitePublisher
) -> None:
    """The check has to write, since nothing else tells."""
    await publisher.publish([MESSAGE])
    (pages,) = await database.write(lambda db: db.execute("PRAGMA page_count").fetchone())
    database._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFullError, match="free some space"):
        await publisher.publish([MESSAGE, Message(bytes(10**5)), MESSAGE])
    taken = 1
    with contextlib.suppress(StorageFullError):
        while taken < 100:
            await publisher.publish([Message(bytes(300))])
            taken += 1
    with pytest.raises(StorageFullError):
        await publisher.check()
    database._db.execute("PRAGMA max_page_count = 1000000")
    await publisher.check()
    rows = database.reader().execute("SELECT data, attributes FROM messages").fetchall()
    counted = "SELECT bytes FROM broker"
    assert len(rows) == taken
    assert database.reader().execute(counted).fetchone() == (sum(weight_of(*row) for row in rows),)


async def test_a_lock_that_lasts_is_said_to_be_transient_and_nothing_was_done(
    database: Database, store: SqliteStore
) -> None:
    database._db.execute("PRAGMA busy_timeout = 1")
    commit = Commit((Receipt("key", StoreMillis(1)),), ())
    with closing(opened(database.path)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError, match="locked") as raised:
            await store.apply(commit)
        assert isinstance(raised.value.__cause__, sqlite3.Error)
    await store.apply(commit)


async def test_all_waiting_writes_wait_for_a_lasting_lock_together(
    database: Database, publisher: SqlitePublisher
) -> None:
    """One by one, a hundred of them would block everybody for a hundred times as long."""
    database._db.execute("PRAGMA busy_timeout = 200")
    with closing(opened(database.path)) as stranger:
        stranger.execute("BEGIN EXCLUSIVE")
        begun = asyncio.get_running_loop().time()
        ends = await asyncio.gather(*(publisher.publish([MESSAGE]) for _ in range(100)), return_exceptions=True)
        assert [type(end) for end in ends] == [TransientError] * 100
        assert asyncio.get_running_loop().time() - begun < 5
    await publisher.publish([MESSAGE])


@pytest.mark.parametrize("companion", ["", "-wal", "-shm"])
async def test_a_file_that_was_removed_under_it_takes_nothing_more(
    companion: str, database: Database, publisher: SqlitePublisher
) -> None:
    await publisher.publish([MESSAGE])
    file = f"{database.path}{companion}"
    shutil.move(file, f"{file}.away")
    with pytest.raises(DamagedError, match=rf"{file} was removed or replaced"):
        await publisher.publish([MESSAGE])
    shutil.copy(f"{file}.away", file)
    with pytest.raises(DamagedError, match="restart"):
        await publisher.publish([MESSAGE])


async def test_a_connection_that_can_not_be_opened_any_more_is_one_of_our_errors(
    database: Database, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all file descriptors are in use."""
    monkeypatch.setattr(database, "path", tmp_path / "nowhere" / "file")
    with pytest.raises(TransientError, match="unable to open"):
        async with store.snapshot(), store.snapshot():
            pass


async def read_snapshot(store: SqliteStore) -> object:
    async with store.snapshot() as snapshot:
        return await snapshot.read(["a"], ["key"])


READS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "snapshot": read_snapshot,
    "receipts": lambda store: store.receipts(["key"]),
    "shards": lambda store: store.shards(["a"]),
    "names": lambda store: store.names("", "", 10),
    "pull": lambda store: SqliteSubscription(store.database, ManualClock(), 60).pull(1, 10**6, 0),
    "view": lambda store: SqliteOverlay(store.database, "topic").view(["a"]),
    "overlay names": lambda store: SqliteOverlay(store.database, "topic").names(""),
    "holds": lambda store: SqliteOverlay(store.database, "topic").holds(["key"]),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_that_fails_is_one_of_our_errors(
    name: str, database: Database, store: SqliteStore, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publisher.publish([MESSAGE])
    reader = database.reader

    def failing() -> sqlite3.Connection:
        connection = reader()
        connection.set_progress_handler(lambda: 1, 1)
        return connection

    monkeypatch.setattr(database, "reader", failing)
    with pytest.raises(TransientError, match="interrupted"):
        await READS[name](store)


NUMBER: Final = 20_000
PAGE: Final = 100
_STEPS: Final = 100
"""Instructions of SQLite between two calls of the counter."""


async def steps_of(store: SqliteStore, prefix: str, after: str) -> int:
    """Hundreds of SQLite's instructions that a page takes."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with store.database.reading() as db:
        db.set_progress_handler(count, _STEPS)
        names = await store.names(prefix, after, PAGE)
        db.set_progress_handler(None, 0)
    assert len(names) == PAGE
    assert all(name > after and name.startswith(prefix) for name in names)
    return counted


@pytest.mark.parametrize("prefix", ["", "c"])
async def test_a_page_far_behind_takes_no_longer_than_the_first(store: SqliteStore, prefix: str) -> None:
    names = [f"c{number:06}" for number in range(NUMBER)]
    await store.apply(Commit((Receipt("e:1", NEVER),), tuple(ShardAdd(name, 0, 1, 1) for name in names)))
    first = await steps_of(store, prefix, "")
    far = await steps_of(store, prefix, names[-PAGE - 1])
    assert far <= first + 1, "SQLite looks through the names before the page"


async def test_who_waits_for_messages_looks_when_this_process_has_written(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "QUIET", 3_600.0)
    looks: list[str] = []
    with database.reading() as db:
        db.set_trace_callback(looks.append)
    pulling = asyncio.create_task(SqliteSubscription(database, ManualClock(), 60).pull(10, 1_000, 3_600.0))
    async with asyncio.timeout(20):
        while not looks:
            await asyncio.sleep(0)
        await publisher.publish([MESSAGE])
        assert len(await pulling) == 1
    assert len(looks) == 2


async def test_soon_after_something_was_found_it_looks_often_for_what_others_write(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUIET", "ALERT"):
        monkeypatch.setattr(broker, name, 3_600.0)
    subscription = SqliteSubscription(database, ManualClock(), 60)
    await publisher.publish([MESSAGE])
    assert len(await subscription.pull(10, 1_000, 0)) == 1
    pulling = asyncio.create_task(subscription.pull(10, 1_000, 3_600.0))
    other = Database(database.path)
    await SqlitePublisher(other, ManualClock(), 1_000_000).publish([MESSAGE])
    assert len(await pulling) == 1
    await other.close()


async def test_what_comes_in_quick_succession_is_found_together(
    database: Database, publisher: SqlitePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "POLL", 3_600.0)
    subscription = SqliteSubscription(database, ManualClock(), 60)
    await publisher.publish([MESSAGE])
    assert len(await subscription.pull(10, 1_000, 0)) == 1
    pulling = asyncio.create_task(subscription.pull(10, 1_000, 3_600.0))
    for _ in range(3):
        await publisher.publish([MESSAGE])
    assert not pulling.done()
    pulling.cancel()
    assert len(await subscription.pull(10, 1_000, 0)) == 3
