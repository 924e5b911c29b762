"""Owns the file that an export is written to: it is there when all of it is, and not before."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from shared.errors import CountersinkError


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
        raise CountersinkError(f"{file} can't be written: {error.strerror or error}") from error
