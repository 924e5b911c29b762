"""Appends events to a file, one line of JSON for each."""

import asyncio
import os
from collections.abc import Sequence
from errno import EINVAL
from pathlib import Path
from typing import Final

from shared.model.feed import Event

_BEGIN: Final = b'{"specversion":"1.0","id":'
"""How each event begins."""


class EventFile:
    """What it said it took is on the disk. If somebody moves the file away, as logrotate does, a new one is made."""

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source
        self._file: int | None = None

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        lines = b"".join([event.structured(self._source) + b"\n" for event in events])
        try:
            await asyncio.to_thread(self._append, lines)
        except OSError as error:
            return [f"{self._path}: {error.strerror}"] * len(events)
        return [""] * len(events)

    def _append(self, lines: bytes) -> None:
        file = self._opened()
        end = os.fstat(file).st_size
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(file, view) :]
            os.fdatasync(file)
        except OSError:
            os.ftruncate(file, end)  # no part of a line stays
            raise

    def _opened(self) -> int:
        if self._file is not None:
            try:
                if os.path.samestat(os.fstat(self._file), self._path.stat()):
                    return self._file
            except FileNotFoundError:
                pass
            os.close(self._file)
            self._file = None
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _end_of_lines(file)
        except OSError:
            os.close(file)
            raise
        self._file = file
        return file

    async def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _end_of_lines(file: int) -> None:
    """Cut off an event that was begun when the machine stopped. It was not taken, so it comes again. Raises an
    `OSError` if the file ends with something else, which somebody may need.
    """
    end = os.fstat(file).st_size
    block = 65_536
    while end > 0:
        begin = max(end - block, 0)
        tail = os.pread(file, end - begin, begin)
        if (found := tail.rfind(b"\n")) >= 0:
            end = begin + found + 1
            break
        end = begin
    begun = os.pread(file, len(_BEGIN), end)
    if not _BEGIN.startswith(begun):
        raise OSError(EINVAL, "it ends with half a line that is no event: name another file, or end the line")
    if begun:
        os.ftruncate(file, end)
