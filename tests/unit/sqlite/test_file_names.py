"""One file, one log: links are followed, and what would have a second log is refused."""

import os
from pathlib import Path

import pytest

from shared.config.findings import FAIL
from shared.model.errors import LostFileError, SettingsError
from shared.sqlite import file_names
from shared.sqlite.database import Database
from shared.sqlite.file_names import flaw_of, real
from shared.sqlite.setup import SqliteSetup
from tests.unit.sqlite.test_witness import companion, written

MOUNTED = "36 35 8:1 /files/c.db {} rw,noatime master:1 - ext4 /dev/sda1 rw\n35 1 8:1 / / rw - ext4 /dev/sda1 rw\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    folder.mkdir()
    return folder / "c.db"


async def test_two_hard_links_are_refused_by_either_name_and_one_is_not(file: Path, tmp_path: Path) -> None:
    """Each would have a log of its own, and what one process commits the other one would write over."""
    await written(file, None)
    other = tmp_path / "copy.db"
    os.link(file, other)
    for name in (file, other):
        with pytest.raises(SettingsError, match=r"has 2 names \(hard links\)") as caught:
            Database(name)
        assert "\n" not in str(caught.value)
        assert str(name) in str(caught.value)
        (flaw,) = [one.said for one in [f async for f in SqliteSetup(name, 0).findings()] if one.mark == FAIL]
        assert flaw == str(caught.value)
    assert not companion(other, "turn").exists()
    other.unlink()
    await written(file, None)


async def test_a_file_that_is_mounted_by_itself_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(file, None)
    at = str(file).replace(" ", "\\040")
    assert flaw_of(file, MOUNTED.format(file.parent)) is None
    assert flaw_of(file, "") is None
    assert flaw_of(file, "rubbish\n") is None
    monkeypatch.setattr(file_names, "mounts", lambda: MOUNTED.format(at))
    with pytest.raises(SettingsError, match="mount its folder instead"):
        Database(file)


@pytest.mark.parametrize("made", [True, False])
async def test_a_link_leads_to_the_file_and_to_its_log(file: Path, tmp_path: Path, *, made: bool) -> None:
    if made:
        await written(file, None)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    both = [Database(link), Database(file)]
    for database in both:
        assert database.path == file
    for database in both:
        await database.write(lambda db: db.execute("UPDATE store SET time = time + 1"))
    for database in both:
        assert database.reader().execute("SELECT time FROM store").fetchone() == (2,)
    for database in both:
        await database.close()
    assert [name for name in os.listdir(tmp_path) if name.startswith("link")] == ["link.db"]  # noqa: PTH208 (short)
    assert not [one async for one in SqliteSetup(link, 0).findings() if one.mark == FAIL]


async def test_what_a_link_led_to_is_missed_by_each_of_its_names(file: Path, tmp_path: Path) -> None:
    link, state = tmp_path / "link.db", tmp_path / "state"
    link.symlink_to(file)
    await written(link, state)
    for path in file.parent.iterdir():
        path.unlink()
    with pytest.raises(LostFileError, match="is gone"):
        Database(link, state)


def test_links_in_a_circle_are_said_so(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(link)
    with pytest.raises(SettingsError, match="a circle"):
        real(link)
