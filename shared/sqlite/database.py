"""One SQLite file: the thread that writes it, with group commit, the connections that read it, the time that it keeps,
and the room that its disk keeps for it.
"""

import asyncio
import fcntl
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from shared.model.buckets import NEVER, StoreMillis
from shared.model.errors import (
    CountersinkError,
    DamagedError,
    OverloadedError,
    RefusedError,
    SettingsError,
    StorageFullError,
    TransientError,
)
from shared.runtime.clock import Clock
from shared.sqlite.data_file import (
    RESTORE,
    DataFile,
    Log,
    is_damage,
    is_locked,
    make_file,
    make_folder,
    narrow,
    open_lock,
    set_durable,
    why_not_opened,
    why_unsafe,
)
from shared.sqlite.schema import ACCOUNTS, InUseError, make_tables, refuse_others

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

LONGEST_TURN: Final = 5.0
"""Seconds to wait for other processes that write to the file."""
_LONGEST_PAUSE: Final = 0.2
"""Seconds between two tries to convert a file that others have open."""
_MOST_IN_A_GROUP: Final = 256
_CACHE: Final = 16_384
"""KiB of pages that the writer keeps. With less, it reads and writes pages several times in a commit of many ids, which
are all over their table.
"""
_MOST_ORDERS: Final = 10_000
_MIN_SQLITE: Final = (3, 38, 0)
"""The first version that always has RETURNING and json_each."""


class NoFileError(SettingsError):
    """The file does not exist, and only some commands make one."""


class _GroupError(Exception):
    """A group failed, but not because of its work: none had begun, or all was done and COMMIT failed."""


class _Order(NamedTuple):
    work: Work[Any]
    done: "asyncio.Future[Any]"
    is_one: bool


class Database:
    """One SQLite file. Work that arrives while the writer syncs shares the next transaction, and so one fsync.

    Reads run on the event loop's thread. In WAL mode they wait for no writer, and one takes a few microseconds, less
    than handing it to a thread. Keep each of them short.
    """

    def __init__(
        self, path: Path, elsewhere: Path | None = None, reserve: int = 0, *, makes: bool = True, applied: bool = True
    ) -> None:
        """`elsewhere`: a folder on another volume that remembers this file. `makes`: make the file if there is none.
        `reserve`: bytes of its disk that are kept free. `applied`: see `Reserve`.

        Raises `LostFileError` if the file is gone, or is not the one that was here before.
        """
        self._file = DataFile(path, elsewhere)
        self.path = self._file.path
        self.reserve = Reserve(self.path, reserve, applied=applied)
        self.commits = 0
        """Groups that this process has written."""
        self._committed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._readers: list[sqlite3.Connection] = []
        self._reader: sqlite3.Connection | None = None
        # Writers take turns by a lock of ours: SQLite's own wait sleeps longer each time, however short the others are.
        self._db, self._turn = _prepare(self._file, makes=makes)
        self._log = Log(self.path)
        self._db.execute(f"PRAGMA busy_timeout = {LONGEST_TURN * 1000:.0f}")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE}")
        self._file.open()
        self._thread = threading.Thread(target=self._write, name=f"writer of {self.path}", daemon=True)
        self._thread.start()

    def reader(self) -> sqlite3.Connection:
        """A connection for reads on the event loop's thread, which must not wait. It is closed with the database."""
        with translated(self.path):
            connection = connect_to(self.path)
        connection.execute("PRAGMA busy_timeout = 50")
        self._readers.append(connection)
        return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection for single reads, which all share, with errors translated. Don't await or begin inside."""
        with translated(self.path):
            if self._reader is None:  # made late, since many objects never read
                self._reader = self.reader()
            yield self._reader

    def read(self, query: str, *values: Any) -> list[Any]:
        """All rows that this query finds, as soon as they are there: it must be a short one."""
        with self.reading() as db:
            return db.execute(query, values).fetchall()

    async def write(self, work: Work[T], *, is_one: bool = False) -> T:
        """Run `work` in a transaction. Returns its result when the transaction is durable. `is_one`: it changes things
        with a single statement, which is a transaction of its own and takes less time.

        If other work in the same transaction fails, `work` is rolled back and runs again, alone. So it must change
        things only through its connection.
        """
        if self._orders.qsize() >= _MOST_ORDERS:
            raise OverloadedError(f"too much waits to be written to {self.path.name}: is its disk stuck?")
        done: asyncio.Future[T] = self._loop.create_future()
        self._orders.put(_Order(work, done, is_one))
        return await done

    async def after_commit(self, seen: int, wait: float) -> None:
        """Wait until this process has written more groups than `seen`, but at most for this many seconds. All that wait
        for it wake up together, so that a quiet process wakes up seldom.
        """
        if self.commits == seen:
            timer = self._loop.call_later(wait, self._wake)
            try:
                await self._committed.wait()
            finally:
                timer.cancel()

    async def close(self) -> None:
        """Do all work that was ordered, then close."""
        self._orders.put(None)
        await asyncio.to_thread(self._thread.join, LONGEST_TURN + 1)
        for connection in self._readers:
            connection.close()
        os.close(self._turn)
        self._file.close()

    def _write(self) -> None:
        """Run the writer's thread."""
        orders = self._orders
        ended = False
        while not ended:
            order = orders.get()
            group: list[_Order] = []
            while True:
                if order is None:
                    ended = True
                    break
                group.append(order)
                if len(group) == _MOST_IN_A_GROUP or orders.empty():
                    break
                order = orders.get()
            if group:
                self._loop.call_soon_threadsafe(self._tell, group, self._commit(group))
                self._log.shorten(self._db)
                self._file.note(self._db, self._log)
        self._file.note(self._db, self._log, now=True)
        self._db.close()

    def _tell(self, group: list[_Order], results: list[Any]) -> None:
        for order, result in zip(group, results, strict=True):
            if order.done.done():
                continue  # the caller was cancelled
            if isinstance(result, BaseException):
                order.done.set_exception(result)
            else:
                order.done.set_result(result)
        self.commits += 1
        self._wake()

    def _wake(self) -> None:
        self._committed.set()
        self._committed.clear()

    def _commit(self, group: list[_Order]) -> list[Any]:
        """A result or an exception for each order. If the work of one fails, all run again, one by one.

        If the file can't be locked, none runs again, since each would wait as long as all of them did. Nor if COMMIT
        fails, since after a disk error it is unknown whether it happened.
        """
        try:
            return self._transact(group)
        except _GroupError as error:
            return [translate(error.__cause__ or error, self.path) for _ in group]
        except Exception as error:
            if len(group) == 1:
                return [translate(error, self.path)]
        return [self._commit([order])[0] for order in group]

    def _transact(self, group: list[_Order]) -> list[Any]:
        db = self._db
        with _blaming_nobody():
            self._take_turn()
        try:
            with _blaming_nobody():
                self._file.check()
            if len(group) == 1 and group[0].is_one and not self._log.inherited:
                return [group[0].work(db)]
            with _blaming_nobody():
                db.execute("BEGIN IMMEDIATE")
                self._log.inherit()
            results = [order.work(db) for order in group]
            with _blaming_nobody():
                db.execute("COMMIT")
            return results
        finally:
            try:
                if db.in_transaction:
                    db.execute("ROLLBACK")
            finally:
                fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _take_turn(self) -> None:
        """Wait until no other process commits. Raises an error if one of them holds the lock for long."""
        until, pause = time.monotonic() + LONGEST_TURN, 0.0001
        while True:
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TransientError(
                        f"another process has locked {self.path.name} for too long: is it stopped?"
                    ) from None
                time.sleep(pause)
                pause = min(pause * 2, 0.002)
            else:
                return

    def check(self) -> None:
        """Raise `DamagedError` if the file is not the one that was opened. Reads need this check, too."""
        self._file.check_often()


@contextmanager
def _blaming_nobody() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _GroupError from error


def translate(error: BaseException, path: Path) -> BaseException:
    """An error of SQLite as one of ours; other errors as they are."""
    if isinstance(error, OverflowError):
        refused = RefusedError("a sum is beyond int64")
        refused.__cause__ = error
        return refused
    if isinstance(error, CountersinkError) or not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    ours: CountersinkError
    if code == sqlite3.SQLITE_FULL:
        ours = StorageFullError(f"the disk of {path.name} is full: free some space")
    elif is_locked(error):
        ours = TransientError(
            f"another program has locked {path.name} ({error}): close that program, or wait until it ends"
        )
    elif is_damage(error):
        ours = DamagedError(f"{path} is damaged, or its disk can't be read ({error}): look at the disk, {RESTORE}")
    else:
        ours = TransientError(f"{path.name}: {error}")
    ours.__cause__ = error
    return ours


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _prepare(file: DataFile, *, makes: bool) -> tuple[sqlite3.Connection, int]:
    """The connection that writes, and the lock by which processes take turns."""
    path = file.path
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        raise SettingsError(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 or later is needed")
    file.recognise()
    if (flaw := why_unsafe(path)) is not None:
        raise SettingsError(flaw)
    try:
        if not makes and not path.exists():
            raise NoFileError(f"{path} does not exist. Is the path right, and is its volume mounted?")
        make_folder(path.parent)
    except OSError as error:
        raise SettingsError(f"can't make the folder {path.parent}: {error.strerror}") from error
    until = time.monotonic() + LONGEST_TURN
    while True:
        try:
            return _open(path)
        except InUseError:  # perhaps by others that start now, and want to convert it, too
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 (not a secret)


def _open(path: Path) -> tuple[sqlite3.Connection, int]:
    try:
        with ExitStack() as undo:
            make_file(path)  # before the lock: a lock without a file means that the file was lost
            db = undo.enter_context(closing(connect_to(path)))
            refuse_others(db, path)
            narrow(path)  # only what is ours
            turn = open_lock(Path(f"{path}-turn"))
            undo.callback(os.close, turn)
            # Without the lock, if several processes make the file, SQLite tells all but one at once that it is locked.
            fcntl.flock(turn, fcntl.LOCK_EX)
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file, see `delete_results`
            db.execute("PRAGMA journal_mode = WAL")
            make_tables(db, path)
            db.execute(ACCOUNTS)
            fcntl.flock(turn, fcntl.LOCK_UN)
            undo.pop_all()
            return db, turn
    except (OSError, sqlite3.Error) as error:
        raise SettingsError(f"can't use {path} as the database: {error}. {why_not_opened(path, error)}") from error


def connect_to(path: Path) -> sqlite3.Connection:
    """A connection whose commits are durable. Any thread may use it, one at a time."""
    with ExitStack() as undo:
        db = undo.enter_context(
            closing(sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False))
        )
        set_durable(db)
        undo.pop_all()
        return db


# The time of a file. It passes only while a process runs, so a wrong clock can't make it pass faster.
#
# Each process adds what has passed since it last saw the file's time, by a clock that can't be set. The file keeps the
# highest time. So this time never passes faster than real time. While no process runs it stands still, and receipts
# live longer by as much. No wall clock is ever read.


READ_TIME: Final = "SELECT now FROM store"
KEPT: Final = 600_000
"""Milliseconds that may be lost when all processes end: without commits, the time is written only this often."""


class FileTime:
    """The time as one adapter in one process sees it. Used in the writer's thread and in the event loop's thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._last = NEVER, clock.monotonic()

    def now(self) -> StoreMillis:
        """The time. Call it outside of a write."""
        with self._database.reading() as db:
            return self.inside(db)

    def inside(self, db: sqlite3.Connection) -> StoreMillis:
        """The time within a write, whose transaction keeps other processes from writing."""
        return self._pass(db.execute(READ_TIME).fetchone()[0])

    def keep(self, db: sqlite3.Connection) -> None:
        """Write the time down for later processes, if that was not done for long."""
        (stored,) = db.execute(READ_TIME).fetchone()
        now = self._pass(stored)
        if now > stored + KEPT:
            db.execute("UPDATE store SET now = ?", (now,))

    def _pass(self, stored: int) -> StoreMillis:
        boot, (seen, at) = self._clock.monotonic(), self._last
        now = StoreMillis(max(int(stored), seen + int((boot - at) * 1000)))
        self._last = now, boot
        return now


# The room on the disk: new messages are refused while old ones can still be applied.


SMALL_DISK: Final = 10
"""The reserve is at most the size of the disk divided by this."""
GROWTH: Final = 6
"""Bytes by which the file may grow to apply one pending byte. 4.6 were measured where each increment has a short id,
and so a receipt."""
LOG_GROWTH: Final = 16
"""Bytes by which the log may grow for one pending byte, since each commit writes all pages that it touches."""
LARGEST_LOG: Final = 48 * 2**20
"""Bytes at which the log has surely been started again: SQLite's 4 MiB, and the pages of one commit, of which a flusher
has at most 10,000 receipts and counters.
"""


class Reserve:
    """Checks free space. Call it where waiting does no harm: a look takes microseconds, unless the disk hangs."""

    def __init__(
        self, file: Path, least: int, *, applied: bool = True, look: Callable[[Path], os.statvfs_result] = os.statvfs
    ) -> None:
        """`applied`: what is pending will be applied on this disk, too, and not just be removed from it."""
        self._file = file
        self._least = least
        self._applied = applied
        self._look = look

    def check(self, db: sqlite3.Connection, pending: int, *, large: bool = False) -> int:
        """Raise `StorageFullError` unless there is room for the reserve and for `pending` bytes to be applied. Returns
        for how many more there is room.

        Call it in the writer's thread, with its connection. `large`: a large write can wait, and
        leaves twice the reserve to increments.
        """
        try:
            free, kept = self._free_and_kept()
        except OSError:
            return 0  # a write will report what is wrong
        needed = kept + pending
        if self._applied:
            needed = max(kept, min(LOG_GROWTH * pending, LARGEST_LOG)) + GROWTH * pending + self._in_the_log(db)
        full = f"the disk of {self._file.name} is nearly full, {free >> 20} MiB are free"
        if large and free < 2 * needed:
            raise StorageFullError(
                f"{full}, and exports leave the rest to increments: free some space, or delete exports that you have"
                " read (DELETE /v1/jobs/{id})"
            )
        if free < needed:
            raise StorageFullError(
                f"{full}: free some space; the rest is kept for what was accepted before (COUNTERSINK_DISK_RESERVE)"
            )
        return (free - needed) // (GROWTH + LOG_GROWTH)

    def spare(self) -> int:
        """Free bytes beyond those that are kept. Raises `OSError` if the disk can't be asked."""
        free, kept = self._free_and_kept()
        return free - kept

    def _free_and_kept(self) -> tuple[int, int]:
        disk = self._look(self._file.parent)
        return disk.f_bavail * disk.f_frsize, min(self._least, disk.f_blocks * disk.f_frsize // SMALL_DISK)

    def _in_the_log(self, db: sqlite3.Connection) -> int:
        """Bytes by which the file grows when the log is moved into it. The log itself keeps its length after that."""
        (pages,), (size,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        try:
            return max(int(pages) * int(size) - os.stat(self._file).st_size, 0)  # noqa: PTH116 (for each message)
        except OSError:
            return 0


def json_of(values: Iterable[object]) -> str:
    return orjson.dumps([*values]).decode()
