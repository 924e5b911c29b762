"""Memory in which workers count. It outlives them, so a restarted worker goes on counting there."""

from typing import Final

from shared.runtime import number_cells

OPTION: Final = "--worker-metrics"
"""The option that tells a worker its number, and the descriptors of the memory of each worker."""


class WorkerMetrics:
    """The memory of all workers, in the process that starts them."""

    def __init__(self, count: int) -> None:
        self.descriptors = [number_cells.make_shared() for _ in range(count)]
        self._cells = [number_cells.shared(one, writes=True) for one in self.descriptors]

    def arguments(self, worker: int) -> list[str]:
        return [OPTION, str(worker), *map(str, self.descriptors)]

    def ended(self, worker: int) -> None:
        """Call it when this worker has ended: what it was doing is over, what it counted stays."""
        self._cells[worker].drop_gauges()
