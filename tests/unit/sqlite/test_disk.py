"""How much disk space is kept free, and who is refused when it is not."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flusher.flush.window import MOST_IN_COMMIT_OF_FILE
from shared.model.errors import StorageFullError
from shared.sqlite.database import GROWTH, LARGEST_LOG, LOG_GROWTH, Reserve, connect_to

MIB = 2**20


def check(reserve: Reserve, pending: int) -> None:
    """Of a file with nothing in its log."""
    with closing(sqlite3.connect(":memory:")) as db:
        reserve.check(db, pending)


class Disk:
    """Of a size that the test says, as the system tells it."""

    def __init__(self, size: int, free: int) -> None:
        self.size, self.free = size, free

    def look(self, folder: Path) -> os.statvfs_result:
        assert folder == Path("/data")
        blocks, free = self.size // 4096, self.free // 4096
        return os.statvfs_result((4096, 4096, blocks, free + 10, free, 0, 0, 0, 0, 255))

    def reserve(self, least: int, *, applied: bool = True) -> Reserve:
        return Reserve(Path("/data/file.db"), least, applied=applied, look=self.look)

    def takes(self, reserve: Reserve, pending: int = 0) -> bool:
        try:
            check(reserve, pending)
        except StorageFullError:
            return False
        return True


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
        tmp_path / "file.db",
        free,
        look=lambda _: os.statvfs_result((1, 1, 1_000 * MIB, free, free, 0, 0, 0, 0, 255)),
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
