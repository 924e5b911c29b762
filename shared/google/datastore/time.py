"""A lower bound of the server's clock, learnt from what its responses say. Pure."""

from math import inf
from typing import Any, Final

_DRIFT: Final = 0.001
"""Our clock may run faster than the server's, but not by so much."""


class ServerTime:
    """The greatest, over all responses, of their time plus what has passed since. Never this machine's date."""

    def __init__(self, lag: float) -> None:
        """`lag`: seconds after which all commits of an instant can be read. 0 where the server itself waits."""
        self._lag = int(lag * 1_000_000)
        self._heard = 0
        self._at = float("-inf")
        self._doubted = True

    def hear(self, micros: int, now: float) -> None:
        """A response of this time came; `now` is of `Clock.monotonic`, which counts a sleep of the machine."""
        if self._doubted or micros >= self.bound(now):
            self._heard, self._at, self._doubted = micros, now, False

    def bound(self, now: float) -> int:
        """The server's clock shows this or more; 0 as long as it never answered."""
        return self._heard + int((now - self._at) * (1 - _DRIFT) * 1_000_000) if self._heard else 0

    def wait(self, time: int, now: float) -> float:
        """Seconds until all commits of that instant can be read."""
        return min(self._lag, max(0, time + self._lag - self.bound(now))) / 1_000_000

    def age(self, now: float) -> float:
        """Seconds since something better was heard than what was known; infinite if that is in doubt."""
        return inf if self._doubted else now - self._at

    def doubt(self) -> None:
        """The server disagreed: what it says next is believed, though it may be less. What is known is kept until then,
        since nothing better is.
        """
        self._doubted = True


def micros(timestamp: Any) -> int:
    """Of a protobuf Timestamp."""
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)
