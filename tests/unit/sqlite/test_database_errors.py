"""What a process is told when it can't use the SQLite file, for now or for good."""

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shared.model.buckets import StoreMillis
from shared.model.errors import DamagedError, SettingsError, StorageFullError, TransientError
from shared.model.words import Commit, Message, Receipt
from shared.sqlite.broker import SqliteOverlay, SqlitePublisher, SqliteSubscription, weight_of
from shared.sqlite.data_file import DataFile
from shared.sqlite.database import Database, _prepare
from shared.sqlite.store import SqliteStore
from tests.world.manual_clock import ManualClock

MESSAGE = Message(b'{"counter":"a"}')


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "countersink.db")
    yield database
    await database.close()


def test_many_processes_that_make_the_file_at_once_can_all_use_it(tmp_path: Path) -> None:
    """All processes of a service start together."""
    for attempt in range(10):
        start, errors = threading.Barrier(6), list[BaseException]()

        def make(path: Path, start: threading.Barrier, errors: list[BaseException]) -> None:
            start.wait()
            try:
                _prepare(DataFile(path), makes=True)[0].close()
            except SettingsError as error:
                errors.append(error)

        path = tmp_path / f"file{attempt}"
        threads = [threading.Thread(target=make, args=(path, start, errors)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def files(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


async def test_another_programs_file_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE theirs (a)")
    db.close()
    before = files(tmp_path)
    with pytest.raises(SettingsError, match="another program"):
        Database(path)
    assert files(tmp_path) == before


async def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"can't make the folder .*/file/data: "):
        Database(tmp_path / "file" / "data" / "countersink.db")


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"can't use .* as the database"):
        Database(tmp_path)


async def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    database = Database(tmp_path / "some" / "data" / "countersink.db")
    await database.close()
    assert (tmp_path / "some" / "data" / "countersink.db").exists()


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


async def test_a_full_disk_takes_nothing_of_what_was_published(database: Database) -> None:
    publisher = SqlitePublisher(database, ManualClock(), 10**9)
    await publisher.publish([MESSAGE])
    (pages,) = await database.write(lambda db: db.execute("PRAGMA page_count").fetchone())
    database._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFullError):
        await publisher.publish([MESSAGE, Message(bytes(10**5)), MESSAGE])
    database._db.execute("PRAGMA max_page_count = 1000000")
    await publisher.publish([MESSAGE])
    rows = database.reader().execute("SELECT data, attributes FROM messages").fetchall()
    counted = "SELECT bytes FROM broker"
    assert len(rows) == 2
    assert database.reader().execute(counted).fetchone() == (sum(weight_of(*row) for row in rows),)


async def test_a_check_says_that_the_disk_is_full_and_that_there_is_room_again(database: Database) -> None:
    """It has to write, since nothing else tells."""
    publisher = SqlitePublisher(database, ManualClock(), 10**9)
    (pages,) = await database.write(lambda db: db.execute("PRAGMA page_count").fetchone())
    database._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFullError):
        await publisher.publish([Message(bytes(300))] * 100)
    for _ in range(100):
        try:
            await publisher.publish([Message(bytes(300))])
        except StorageFullError:
            break
    with pytest.raises(StorageFullError):
        await publisher.check()
    database._db.execute("PRAGMA max_page_count = 1000000")
    await publisher.check()


async def test_a_lock_that_lasts_is_said_to_be_transient_and_nothing_was_done(database: Database) -> None:
    store = SqliteStore(database, ManualClock())
    database._db.execute("PRAGMA busy_timeout = 1")
    stranger = sqlite3.connect(database.path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    commit = Commit((Receipt("key", StoreMillis(1)),), ())
    with pytest.raises(TransientError, match="locked") as raised:
        await store.apply(commit)
    assert isinstance(raised.value.__cause__, sqlite3.Error)
    stranger.execute("ROLLBACK")
    stranger.close()
    await store.apply(commit)


async def test_all_waiting_writes_wait_for_a_lasting_lock_together(database: Database) -> None:
    """One by one, a hundred of them would block everybody for a hundred times as long."""
    publisher = SqlitePublisher(database, ManualClock(), 10**6)
    database._db.execute("PRAGMA busy_timeout = 200")
    stranger = sqlite3.connect(database.path, isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")
    begun = asyncio.get_running_loop().time()
    waiting = [publisher.publish([MESSAGE]) for _ in range(100)]
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [TransientError] * 100
    assert asyncio.get_running_loop().time() - begun < 5
    stranger.execute("ROLLBACK")
    stranger.close()
    await publisher.publish([MESSAGE])


@pytest.mark.parametrize("companion", ["", "-wal", "-shm"])
async def test_a_file_that_was_removed_under_it_takes_nothing_more(companion: str, database: Database) -> None:
    publisher = SqlitePublisher(database, ManualClock(), 10**6)
    await publisher.publish([MESSAGE])
    file = f"{database.path}{companion}"
    shutil.move(file, f"{file}.away")
    with pytest.raises(DamagedError, match=rf"{file} was removed or replaced"):
        await publisher.publish([MESSAGE])
    shutil.copy(f"{file}.away", file)
    with pytest.raises(DamagedError, match="restart"):
        await publisher.publish([MESSAGE])


async def test_a_connection_that_can_not_be_opened_any_more_is_one_of_our_errors(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all file descriptors are in use."""
    store = SqliteStore(database, ManualClock())
    monkeypatch.setattr(database, "path", tmp_path / "nowhere" / "file")
    with pytest.raises(TransientError, match="unable to open"):
        async with store.snapshot(), store.snapshot():
            pass


async def read_snapshot(database: Database) -> object:
    async with SqliteStore(database, ManualClock()).snapshot() as snapshot:
        return await snapshot.read(["a"], ["key"])


READS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "snapshot": read_snapshot,
    "receipts": lambda database: SqliteStore(database, ManualClock()).receipts(["key"]),
    "shards": lambda database: SqliteStore(database, ManualClock()).shards(["a"]),
    "names": lambda database: SqliteStore(database, ManualClock()).names("", "", 10),
    "pull": lambda database: SqliteSubscription(database, ManualClock(), 60).pull(1, 10**6, 0),
    "view": lambda database: SqliteOverlay(database, "topic").view(["a"]),
    "overlay names": lambda database: SqliteOverlay(database, "topic").names(""),
    "holds": lambda database: SqliteOverlay(database, "topic").holds(["key"]),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_that_fails_is_one_of_our_errors(
    name: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await SqlitePublisher(database, ManualClock(), 10**6).publish([MESSAGE])
    reader = database.reader

    def failing() -> sqlite3.Connection:
        connection = reader()
        connection.set_progress_handler(lambda: 1, 1)
        return connection

    monkeypatch.setattr(database, "reader", failing)
    with pytest.raises(TransientError, match="interrupted"):
        await READS[name](database)
