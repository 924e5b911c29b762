"""A lower bound of the server's clock, learnt from what its responses say. Pure."""

from typing import Any, Final

_DRIFT: Final = 0.001
"""Our clock may run faster than the server's, but not by so much."""


class ServerTime:
    """The greatest, over all responses, of their time plus what has passed since. Never this machine's date."""

    def __init__(self, lag: float) -> None:
        """`lag`: seconds after which all commits of an instant can be read. 0 where the server itself waits."""
        self._lag = int(lag * 1_000_000)
        self.forget()

    def hear(self, micros: int, now: float) -> None:
        """A response of this time came; `now` is of `Clock.boot`, which counts a sleep of the machine."""
        if micros >= self.bound(now):
            self._heard, self._at = micros, now

    def bound(self, now: float) -> int:
        """The server's clock shows this or more; 0 as long as it never answered."""
        return self._heard + int((now - self._at) * (1 - _DRIFT) * 1_000_000) if self._heard else 0

    def wait(self, time: int, now: float) -> float:
        """Seconds until all commits of that instant can be read."""
        return min(self._lag, max(0, time + self._lag - self.bound(now))) / 1_000_000

    def age(self, now: float) -> float:
        """Seconds since something better was heard than what was known."""
        return now - self._at

    def forget(self) -> None:
        """The server disagreed."""
        self._heard = 0
        self._at = float("-inf")


def micros(timestamp: Any) -> int:
    """Of a protobuf Timestamp."""
    return int(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)
