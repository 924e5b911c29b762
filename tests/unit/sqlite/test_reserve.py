"""How much disk space is kept free, and who is refused when it is not."""

import os
from pathlib import Path

import pytest

from shared.model.errors import StorageFullError
from shared.sqlite.reserve import GROWTH, LOG_GROWTH, Reserve

MIB = 2**20


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
            reserve.check(pending)
        except StorageFullError as error:
            return "/data/file.db" in str(error) and "COUNTERSINK_DISK_RESERVE" not in str(error)
        return True


def test_below_the_reserve_nothing_is_taken_and_it_goes_on_when_there_is_room() -> None:
    disk = Disk(1_000 * MIB, 64 * MIB)
    reserve = disk.reserve(64 * MIB)
    assert disk.takes(reserve)
    disk.free -= 4096
    assert not disk.takes(reserve)
    disk.free += 4096
    assert disk.takes(reserve)


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


def test_what_lies_in_the_log_needs_room_in_the_file(tmp_path: Path) -> None:
    free = 64 * MIB
    reserve = Reserve(
        tmp_path / "file.db",
        free,
        look=lambda _: os.statvfs_result((1, 1, 1_000 * MIB, free, free, 0, 0, 0, 0, 255)),
    )
    reserve.check(0)
    (tmp_path / "file.db-wal").write_bytes(b"1")
    with pytest.raises(StorageFullError):
        reserve.check(0)
    free += 1
    reserve.check(0)


def test_a_folder_that_is_gone_is_somebody_elses_news(tmp_path: Path) -> None:
    Reserve(tmp_path / "gone" / "file.db", 2**40).check(0)


def test_this_disk_can_be_looked_at(tmp_path: Path) -> None:
    Reserve(tmp_path / "file.db", 0).check(1)
    with pytest.raises(StorageFullError):
        Reserve(tmp_path / "file.db", 0).check(2**60)
