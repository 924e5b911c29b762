"""How fast something empties, by what was seen to go; and so when it is worth while to come back. Pure."""

from typing import Final

SOONEST: Final = 1.0
LATEST: Final = 30.0
"""Seconds. Nobody is told to stay away for longer: who can say what will be then."""


class Drain:
    """The rate at which the last `memory` units went. Use it while there is much: what goes while there is little says
    how little came. Time in which nothing went though it should have counts.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._gone = 0.0
        self._took = 0.0
        self._since: float | None = None
        """When the last of it went, or it began."""

    def begins(self, now: float) -> None:
        """There is much, after there was little."""
        self._since = now

    def went(self, amount: float, now: float, *, last: bool = False) -> None:
        """So much has gone. `last`: there is not much any more."""
        keep = self._memory / (self._memory + amount)
        self._gone = self._gone * keep + amount
        self._took = self._took * keep + self._waited(now)
        self._since = None if last else now

    def seconds(self, amount: float, now: float) -> float:
        """Until so much more has gone, as things go, from `SOONEST` to `LATEST`. While nothing ever went, as long again
        as it has been there.
        """
        took = self._took + self._waited(now)
        seconds = max(amount, 0) * took / self._gone if self._gone else took
        return min(max(seconds, SOONEST), LATEST)

    def _waited(self, now: float) -> float:
        return 0.0 if self._since is None else max(now - self._since, 0.0)
