"""Shows the metrics of this process, or, in a worker, those of all workers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.registry import Collector

from shared.runtime import number_cells
from shared.runtime.instruments import Instrument
from shared.runtime.number_cells import NumberCells

WORKER: Final = "worker"
"""The label that says which worker counted."""


class MetricsBoard(Collector):
    """All metrics. Each knows the cells that it is counted in."""

    def __init__(self) -> None:
        self.own = number_cells.private()
        self.instruments: list[Instrument] = []
        self.reads: list[Callable[[], None]] = []
        """What sets several metrics at once, whenever they are shown."""
        self._shown = [_Shown({}, self.own)]

    def join(self, worker: int, descriptors: Sequence[int]) -> None:
        """Be this worker: count in its memory, and show what is in the memory of each. The descriptors are those of
        `number_cells.make_shared`.
        """
        every = [number_cells.shared(one, writes=place == worker) for place, one in enumerate(descriptors)]
        self.own = every[worker]
        self.own.drop_gauges()
        for instrument in self.instruments:
            instrument.move(self.own)
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
