"""A clock that tests turn."""

from shared.model.buckets import Monotonic, WallSeconds


class ManualClock:
    """It stands still until it is turned by hand."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start

    def now(self) -> WallSeconds:
        return WallSeconds(self._now)

    def monotonic(self) -> Monotonic:
        return Monotonic(self._now)

    def turn(self, seconds: float) -> None:
        self._now += seconds
