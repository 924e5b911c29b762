"""Memory for the numbers of metrics. Processes may share it, so counts outlive the process that made them.

Each number has a cell of eight bytes. A table behind the cells says which series begins where, so that another process
can read them. One process writes at a time.
"""

import json
import mmap
import os
import sys
import tempfile
from math import nan
from typing import Final, NamedTuple

CELLS: Final = 16_384
_KEYS: Final = 524_288
"""Bytes of the table."""
GAUGE: Final = "gauge"
SIZE: Final = 8 * CELLS + _KEYS
_USED, _WRITTEN, _FIRST = range(3)
"""The first cells: how many are used, and the bytes of the table."""


class SeriesKey(NamedTuple):
    """What a series is called."""

    kind: str
    name: str
    labels: tuple[str, ...] = ()
    width: int = 1
    """Cells that it has."""


class NumberCells:
    """Numbers in a block of memory."""

    def __init__(self, memory: "bytearray | mmap.mmap") -> None:
        view = memoryview(memory)
        self.cells: memoryview[float] = view[: 8 * CELLS].cast("d")
        self._table = view[8 * CELLS :]
        self._read = 0
        self._places: dict[SeriesKey, int] = {}
        if not view.readonly and not self.cells[_USED]:
            self.cells[_USED] = _FIRST

    def place(self, key: SeriesKey) -> int:
        """The first cell of this series, which is entered if it is new."""
        found = self.series().get(key)
        if found is not None:
            return found
        start = int(self.cells[_USED])
        line = json.dumps([*key, start]).encode() + b"\n"
        end = self._read + len(line)
        if start + key.width > CELLS or end > _KEYS:
            raise MemoryError("there are more series of metrics than their memory has room for")
        self._table[self._read : end] = line
        self.cells[_USED] = start + key.width
        self.cells[_WRITTEN] = end  # last: readers look here for what is complete
        return self.series()[key]

    def series(self) -> dict[SeriesKey, int]:
        """The series that there are, and where each begins."""
        end = int(self.cells[_WRITTEN])
        if end > self._read:
            for line in bytes(self._table[self._read : end]).splitlines():
                kind, name, labels, width, start = json.loads(line)
                self._places[SeriesKey(kind, name, tuple(labels), width)] = start
            self._read = end
        return self._places

    def drop_gauges(self) -> None:
        """Forget the gauges of a process that has ended. Its counts stay."""
        for key, start in self.series().items():
            if key.kind == GAUGE:
                self.cells[start] = nan


def private() -> NumberCells:
    """Cells that only this process has."""
    return NumberCells(bytearray(SIZE))


def make_shared() -> int:
    """The descriptor of new shared memory, empty and without a name. It is gone when no process has it open."""
    if sys.platform == "linux":  # it needs no folder that can be written to
        number = os.memfd_create("countersink metrics")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, SIZE)
    return number


def shared(number: int, *, writes: bool) -> NumberCells:
    """The cells in shared memory, by its descriptor."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
    return NumberCells(mmap.mmap(number, SIZE, prot=access))
