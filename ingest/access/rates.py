"""Limits how many increments a second a key may send, and what else publishable keys may send and read."""

from collections import deque
from typing import Final, NamedTuple

from shared.http.shares import Shares
from shared.model.errors import ShareError, amount
from shared.model.words import Deltas
from shared.runtime.clock import Clock

BURST: Final = 1.0
"""Seconds: a key that was idle may at once send what it may send in this time."""
CLIENT_PART: Final = 10
"""Each client of a publishable key may send 1/10 of its rate, unless the key says how much."""
CLIENT_RATE: Final = 10.0
"""Increments a second for each client of a key without a rate."""
CLIENT_BURST: Final = 100.0
"""Increments that a client may send at once with a publishable key that has no rate."""
NEW_AN_HOUR: Final = 1_000
"""New counters an hour that a publishable key may make, unless it says how many."""
HOUR: Final = 3_600.0


def burst_of(rate: float | None) -> float:
    """Increments that may be sent at once with a key of this rate, after a pause: by all who use it together, and by
    each client of a publishable key, whatever its own rate, since one request may hold as many.
    """
    return CLIENT_BURST if rate is None else max(rate * BURST, 1.0)


def client_rate_of(rate: float | None) -> float:
    """What each client of a publishable key of this rate may send, if the key does not say it."""
    return CLIENT_RATE if rate is None else min(max(rate / CLIENT_PART, 1.0), rate)


class Bucket:
    """A token bucket. A batch may be larger than what is in it: the key then has to wait until it is made up for. There
    are no shares of a rate: a client can rely on its own, whatever others send.
    """

    def __init__(
        self, whose: str, rate: float, clock: Clock, burst: float | None = None, what: str = "increment"
    ) -> None:
        """`whose`: who sends or reads more, and more than what, for the error."""
        self._whose = whose
        self._what = what
        self.rate = rate
        self._clock = clock
        self._most = burst_of(rate) if burst is None else burst
        self._held = self._most
        self._then = clock.monotonic()

    def check(self, increments: int = 1) -> None:
        now = self._clock.monotonic()
        self._held = min(self._held + (now - self._then) * self.rate, self._most)
        self._then = now
        if self._held < increments:
            raise ShareError(
                f"{self._whose} {self.rate:g} {self._what}{'s' * (self.rate != 1)} a second: wait, or send fewer"
                " requests",
                (increments - self._held) / self.rate,
            )

    def take(self, increments: int) -> None:
        """Count increments. Raises `ShareError` if not even one may be sent now."""
        if self._held < 1.0:
            self.check()
        self._held -= increments


class NewCounters(Shares):
    """The new counters that a publishable key made in the last hour: anybody can have the key, and invent names."""

    def __init__(self, key: str, most: int, clock: Clock) -> None:
        super().__init__(most)
        self.key = key
        self._clock = clock
        self._made: deque[tuple[float, str]] = deque()
        """When, and by which client."""

    def forget(self) -> None:
        since = self._clock.monotonic() - HOUR
        while self._made and self._made[0][0] <= since:
            self.leave(self._made.popleft()[1], 1)

    def add(self, client: str) -> None:
        self._made.append((self._clock.monotonic(), client))
        self.enter(client, 1)

    def give_back(self, client: str) -> None:
        for place in range(len(self._made) - 1, -1, -1):
            if self._made[place][1] == client:
                del self._made[place]
                self.leave(client, 1)
                return


class NewQuota(NamedTuple):
    """How many new counters one client may still make with a publishable key: its share of them."""

    made: NewCounters
    client: str

    def flaw_of(self, name: str) -> str | None:
        made, share = self.made, ""
        made.forget()
        if made.left(1) >= 0:
            if not made.excess(self.client, 1):
                return None
            share = f", and this client ({self.client}) has made {made.held_by(self.client)}, which is its share"
        return (
            f"the key {made.key} may make {amount(made.limit, 'new counter')} an hour{share}: {name[:100]!r} would be"
            " one more. Counters that exist still count"
        )

    def take(self) -> None:
        self.made.add(self.client)

    def give_back(self) -> None:
        self.made.give_back(self.client)


class Public(NamedTuple):
    client: Bucket
    """The bucket of this client alone. The key's own bucket is for all of its clients."""
    most: int
    """Increments in one request, or counters that it reads. Otherwise one large batch would use up what all clients may
    send for a long time.
    """
    deltas: Deltas
    new: NewQuota
    reads: tuple[Bucket, ...]
    """The buckets of this client, and of all clients of the key, in counters that are read. Reading takes
    nothing from what may be sent, so nobody can keep others from counting by reading.
    """

    def read(self, counters: int) -> None:
        """Count these against the rates. Raises `ShareError` if this many may not be read now."""
        for bucket in self.reads:
            bucket.check(counters)
        for bucket in self.reads:
            bucket.take(counters)
