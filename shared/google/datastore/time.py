"""A lower bound of the server's clock, learnt from what its responses say. Pure."""

from math import inf
from typing import Any, Final

from shared.model.times import BEGINNING, Instant, Monotonic, StoreMillis

_DRIFT: Final = 0.001
"""Our clock may run faster than the server's, but not by so much."""


class ServerTime:
    """The greatest time of any response, plus what has passed since then. It never uses this machine's date."""

    def __init__(self, lag: float) -> None:
        """`lag`: seconds after which all commits of an instant can be read. 0 where the server itself waits."""
        self._lag = int(lag * 1_000_000)
        self._heard = BEGINNING
        self._at = float("-inf")
        self._doubted = True

    def hear(self, micros: Instant, now: Monotonic) -> None:
        """Note the time of a response."""
        if self._doubted or micros >= self.bound(now):
            self._heard, self._at, self._doubted = micros, now, False

    def bound(self, now: Monotonic) -> Instant:
        """The server's clock shows at least this (micros); 0 until it has answered once."""
        if not self._heard:
            return BEGINNING
        return Instant(self._heard + int((now - self._at) * (1 - _DRIFT) * 1_000_000))

    def wait(self, time: Instant, now: Monotonic) -> float:
        """Seconds until all commits of that instant can be read."""
        return min(self._lag, max(0, time + self._lag - self.bound(now))) / 1_000_000

    def age(self, now: Monotonic) -> float:
        """Seconds since a response last improved the bound; infinite while the bound is in doubt."""
        return inf if self._doubted else now - self._at

    def doubt(self) -> None:
        """Note that the server disagreed with the bound. Its next time is believed, even if that is earlier. Until then
        the bound stays, because there is no better one.
        """
        self._doubted = True


def millis(time: Instant) -> StoreMillis:
    """What the store's clock shows at that instant."""
    return StoreMillis(time // 1_000)


def micros(timestamp: Any) -> Instant:
    """A protobuf Timestamp in microseconds since 1970, which are the instants of this store."""
    return Instant(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)
