"""Estimates how fast a queue empties, and so when a client that was refused should come back. Pure."""

from typing import Final

SOONEST: Final = 1.0
LATEST: Final = 30.0
"""Seconds. No client is told to wait longer, because no estimate reaches further."""


class Drain:
    """The rate at which the last `memory` units left the queue. Measure only while the queue is long: what leaves a
    short queue tells how little arrived. Time in which nothing left a long queue counts.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._gone = 0.0
        self._took = 0.0
        self._since: float | None = None
        """When something last left, or when the queue became long."""

    def begins(self, now: float) -> None:
        """The queue has become long."""
        self._since = now

    def left(self, amount: float, now: float, *, last: bool = False) -> None:
        """Note that this amount has left. `last`: the queue is not long any more."""
        keep = self._memory / (self._memory + amount)
        self._gone = self._gone * keep + amount
        self._took = self._took * keep + self._waited(now)
        self._since = None if last else now

    def seconds(self, amount: float, now: float) -> float:
        """How long it will take until this amount has left, from `SOONEST` to `LATEST`. If nothing ever left: as long
        as the queue has been long.
        """
        took = self._took + self._waited(now)
        seconds = max(amount, 0) * took / self._gone if self._gone else took
        return min(max(seconds, SOONEST), LATEST)

    def _waited(self, now: float) -> float:
        return 0.0 if self._since is None else max(now - self._since, 0.0)
