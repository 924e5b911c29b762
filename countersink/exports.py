"""Owns the file that an export is written to: it is there when all of it is, and not before."""

import os
import sys
from collections.abc import AsyncIterator
from errno import EISDIR
from pathlib import Path

from shared.errors import CountersinkError


def check(file: str) -> None:
    """That it can be written, before the work is done."""
    if file == "-":
        return
    path, part = Path(file), Path(f"{file}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        part.open("ab").close()
        if not part.stat().st_size:
            part.unlink()
    except OSError as error:
        raise _unwritable(file, error) from error


async def written(file: str, chunks: AsyncIterator[bytes]) -> None:
    """`-` is standard output. A file that is there is replaced."""
    if file == "-":
        async for chunk in chunks:
            sys.stdout.buffer.write(chunk)
        return
    path, part = Path(file), Path(f"{file}.part")
    try:
        with part.open("wb") as out:  # noqa: ASYNC230 (nobody else waits)
            async for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)  # noqa: ASYNC240 (as above)
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: str, error: OSError) -> CountersinkError:
    return CountersinkError(f"{file} can't be written: {error.strerror or error}")
