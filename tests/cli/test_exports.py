"""What an export may be written to, and what becomes of what was there."""

import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from countersink_server.cli.output import check, written_to
from shared.model.errors import CountersinkError


async def chunks(*, fail: bool = False) -> AsyncIterator[bytes]:
    yield b"first\n"
    if fail:
        raise OSError(28, "No space left on device")
    yield b"second\n"


async def test_it_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_bytes(b"old")
    with pytest.raises(CountersinkError, match="can't be written: No space left on device"):
        await written_to(str(file), chunks(fail=True))
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [file.name]  # noqa: PTH208 (nobody else waits)
    check(str(file))
    await written_to(str(file), chunks())
    assert file.read_bytes() == b"first\nsecond\n"
    assert os.listdir(tmp_path) == [file.name]  # noqa: PTH208 (nobody else waits)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
async def test_a_file_keeps_its_mode_and_a_new_one_is_its_owners(tmp_path: Path, umask: int) -> None:
    shared, new = tmp_path / "shared", tmp_path / "new"
    shared.touch()
    shared.chmod(0o640)
    before = os.umask(umask)
    try:
        for file in (shared, new):
            await written_to(str(file), chunks())
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (shared, new)] == [0o640, 0o600]


async def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (link := tmp_path / "link").symlink_to(folder / "real")
    check(str(link))
    await written_to(str(link), chunks())
    assert link.is_symlink()
    assert (folder / "real").read_bytes() == b"first\nsecond\n"


async def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    check(str(pipe))
    await written_to(str(pipe), chunks())
    reader.join(10)
    assert read == [b"first\nsecond\n"]
    assert pipe.is_fifo()


async def test_what_is_called_like_a_part_of_it_stays(tmp_path: Path) -> None:
    (other := tmp_path / "export.part").write_bytes(b"mine")
    await written_to(str(tmp_path / "export"), chunks())
    assert other.read_bytes() == b"mine"
