"""Counters, gauges and histograms, from which all metrics are made, the memory of their numbers, and how they are
shown.
"""

import json
import mmap
import os
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import inf, isnan, nan
from threading import Lock
from time import time
from typing import ClassVar, Final, NamedTuple, Self

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Memory for the numbers of metrics. Processes may share it, so counts outlive the process that made them.


CELLS: Final = 16_384
_KEYS: Final = 524_288
"""Bytes of the table."""
GAUGE: Final = "gauge"
SIZE: Final = 8 * CELLS + _KEYS
_USED, _WRITTEN, _FIRST = range(3)
"""The first cells: how many are used, and the bytes of the table."""


class SeriesKey(NamedTuple):
    kind: str
    name: str
    labels: tuple[str, ...] = ()
    width: int = 1
    """Cells that it has."""


class NumberCells:
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
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
    return NumberCells(mmap.mmap(number, SIZE, prot=access))


BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NAMES: Final = tuple(map(floatToGoString, (*BUCKETS, inf)))
_lock = Lock()
"""Taken to add to a cell: some threads count, too."""


class Instrument:
    """A metric, or one series of a metric with labels."""

    kind: ClassVar[str]
    width: ClassVar[int] = 1
    _function: Callable[[], float] | None = None

    def __init__(
        self, board: "MetricsBoard", name: str, help_: str, labels: Sequence[str] = (), values: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.help = help_
        self.labelnames = tuple(labels)
        self._board = board
        self._children: dict[tuple[str, ...], Self] = {}
        self._key = SeriesKey(self.kind, name, values, self.width)
        if not values:
            board.instruments.append(self)
        if len(values) == len(self.labelnames):
            self._enter(board.own)

    def labels(self, *values: str) -> Self:
        child = self._children.get(values)
        if child is None:
            child = type(self)(self._board, self.name, self.help, self.labelnames, values)
            self._children[values] = child
        return child

    def set_function(self, function: Callable[[], float]) -> None:
        """Read it from this function, whenever it is shown."""
        self._function = function

    def inc(self, amount: float = 1) -> None:
        with _lock:
            self._cells[self._start] += amount

    def get(self) -> float:
        return self._cells[self._start]

    def refresh(self) -> None:
        """Read it now, if it is a function."""

    def series(self) -> Sequence[Self]:
        return [*self._children.values()] if self.labelnames else [self]

    def move(self, to: NumberCells) -> None:
        """Count there from now on, and take along what was counted."""
        before = self._cells[self._start : self._start + self.width].tolist()
        self._enter(to)
        for place, number in enumerate(before, self._start):
            self._cells[place] += number

    def _enter(self, cells: NumberCells) -> None:
        self._start = cells.place(self._key)
        self._cells = cells.cells

    def add_sample(self, to: Metric, labels: dict[str, str], numbers: Sequence[float]) -> None:
        to.add_sample(self.name, labels, numbers[0])

    def add_common(self, to: Metric) -> None:
        """Show what is the same for all workers, if there is something."""


class Counter(Instrument):
    """It only rises."""

    kind = "counter"
    _last = 0.0

    def refresh(self) -> None:
        """Add what the function rose by. So it continues where another process ended."""
        if self._function is not None:
            now = self._function()
            self.inc(max(now - self._last, 0))
            self._last = now

    def add_sample(self, to: Metric, labels: dict[str, str], numbers: Sequence[float]) -> None:
        to.add_sample(f"{self.name}_total", labels, numbers[0])


class Gauge(Instrument):
    """A value of the moment. It ends with its process. It is not shown while it is not a number."""

    kind = GAUGE
    _for_all = nan

    def set(self, value: float) -> None:
        self._cells[self._start] = value

    def set_to_current_time(self) -> None:
        self.set(time())

    def refresh(self) -> None:
        if self._function is not None:
            self.set(self._function())

    def set_for_all(self, value: float) -> None:
        """Set what is the same for all workers. It is shown once, without the label of a worker."""
        self._for_all = value

    def clear(self) -> None:
        """Forget all series, and what they are read from."""
        self._function = None
        self._for_all = nan
        for one in self.series():
            one.set(nan)
        self._children = {}

    def move(self, to: NumberCells) -> None:
        value = self.get()
        self._enter(to)
        self.set(value)

    def _enter(self, cells: NumberCells) -> None:
        super()._enter(cells)
        self.set(0)

    def add_common(self, to: Metric) -> None:
        self.add_sample(to, {}, [self._for_all])

    def add_sample(self, to: Metric, labels: dict[str, str], numbers: Sequence[float]) -> None:
        if not isnan(numbers[0]):
            super().add_sample(to, labels, numbers)


class Histogram(Instrument):
    """How often something took how long: the sum, then a number for each bucket."""

    kind = "histogram"
    width = 2 + len(BUCKETS)

    def observe(self, seconds: float) -> None:
        self.observe_since((0.0,), seconds)

    def observe_since(self, begun: Sequence[float], now: float) -> None:
        """Observe how long ago these were. Call it in the thread of the event loop only: it takes no lock, since each
        request pays for it.
        """
        cells, first = self._cells, self._start + 1
        cells[self._start] += max(now * len(begun) - sum(begun), 0)
        for one in begun:
            cells[first + bisect_left(BUCKETS, now - one)] += 1

    def add_sample(self, to: Metric, labels: dict[str, str], numbers: Sequence[float]) -> None:
        total, *counts = numbers
        sum_ = 0.0
        for bound, count in zip(_NAMES, counts, strict=True):
            sum_ += count
            to.add_sample(f"{self.name}_bucket", labels | {"le": bound}, sum_)
        to.add_sample(f"{self.name}_count", labels, sum_)
        to.add_sample(f"{self.name}_sum", labels, total)


# Shows the metrics of this process, or, in a worker, those of all workers.


WORKER: Final = "worker"


class MetricsBoard(Collector):
    """All metrics. Each knows the cells that it is counted in."""

    def __init__(self) -> None:
        self.own = private()
        self.worker: int | None = None
        """Which one this process is, of several."""
        self.instruments: list[Instrument] = []
        self.reads: list[Callable[[], None]] = []
        """What sets several metrics at once, whenever they are shown."""
        self._shown = [_Shown({}, self.own)]

    def join(self, worker: int, descriptors: Sequence[int]) -> None:
        """Be this worker: count in its memory, and show what is in the memory of each. The descriptors are those of
        `number_cells.make_shared`.
        """
        self.worker = worker
        every = [shared(one, writes=place == worker) for place, one in enumerate(descriptors)]
        self.own = every[worker]
        self.own.drop_gauges()
        for instrument in self.instruments:
            for one in instrument.series():
                one.move(self.own)
        self._shown = [_Shown({WORKER: str(place)}, cells) for place, cells in enumerate(every)]

    def refresh(self) -> None:
        """Read the metrics that are functions. A worker does it once a second, since others show what it read."""
        for read in self.reads:
            read()
        for instrument in self.instruments:
            for one in instrument.series():
                one.refresh()

    def collect(self) -> Iterator[Metric]:
        self.refresh()
        found = [(shown, shown.by_name()) for shown in self._shown]
        for instrument in self.instruments:
            metric = Metric(instrument.name, instrument.help, instrument.kind)
            for shown, by_name in found:
                for values, numbers in by_name.get((instrument.kind, instrument.name, instrument.width), ()):
                    its = dict(zip(instrument.labelnames, values, strict=False))
                    instrument.add_sample(metric, its | shown.labels, numbers)
            instrument.add_common(metric)
            yield metric


class _Shown(NamedTuple):
    """Cells that are shown, with these labels."""

    labels: dict[str, str]
    cells: NumberCells

    def by_name(self) -> dict[tuple[str, str, int], list[tuple[tuple[str, ...], list[float]]]]:
        """The label values and the numbers of the series, by what they are series of."""
        found: dict[tuple[str, str, int], list[tuple[tuple[str, ...], list[float]]]] = {}
        for key, start in self.cells.series().items():
            numbers = [*self.cells.cells[start : start + key.width]]
            found.setdefault((key.kind, key.name, key.width), []).append((key.labels, numbers))
        return found
