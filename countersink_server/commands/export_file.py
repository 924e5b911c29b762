"""Writes the file of an export. The file appears when it is complete, not before."""

import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from errno import EISDIR
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from shared.model.errors import CountersinkError

STANDARD = "-"
"""The name that means standard output."""


def check(file: str) -> None:
    """Raise an error now if the file can't be written, before the work begins."""
    if file == STANDARD:
        return
    try:
        path = _target(file)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if not _is_special(path):
            _new_beside(path).unlink()
    except OSError as error:
        raise _unwritable(file, error) from error


async def written(file: str, chunks: AsyncIterator[bytes]) -> None:
    """Replace the file and keep its mode. A pipe or device is written to directly."""
    try:
        if file == STANDARD:
            await _copy(chunks, sys.stdout.buffer)
            return
        path = _target(file)
        if _is_special(path):
            with path.open("wb") as out:
                await _copy(chunks, out)
            return
        part = _new_beside(path)
        try:
            with part.open("wb") as out:
                await _copy(chunks, out)
                os.fsync(out.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(file, error) from error


async def _copy(chunks: AsyncIterator[bytes], out: BinaryIO) -> None:
    async for chunk in chunks:
        out.write(chunk)
    out.flush()


def _target(file: str) -> Path:
    """The path that symbolic links lead to."""
    return Path(file).resolve()


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe."""
    return path.exists() and not path.is_file()


def _new_beside(path: Path) -> Path:
    """Create an empty file with an unused name, and the mode of `path`. If that is new, only its owner can read it."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    file, name = mkstemp(prefix=f"{path.name[:100]}.", suffix=".part", dir=path.parent)
    os.fchmod(file, mode)
    os.close(file)
    return Path(name)


def _unwritable(file: str, error: OSError) -> CountersinkError:
    name = "standard output" if file == STANDARD else file
    return CountersinkError(f"{name} can't be written: {error.strerror or error}.")
