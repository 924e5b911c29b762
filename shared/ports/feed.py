"""What the feed depends on: a book of what is owed to the receiver, and the receiver."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from shared.model.buckets import Millis
from shared.model.feed import Change, Event, Reach, Told


class Owed(NamedTuple):
    """What is due to be reported."""

    changes: Sequence[Change]
    """Read at one instant, which is not before any commit for which they are owed."""
    reaches: Sequence[Reach]


class Waiting(NamedTuple):
    """The reports that are due."""

    events: int
    """Counters that changed, and commits that reached thresholds."""
    oldest: float
    """Seconds for which the oldest of it has been due."""


class FeedBook(Protocol):
    """Keeps what is owed. Each commit of any process enters the counters that it changes, and the thresholds that it
    reaches, or is not applied.
    """

    async def open(self, told: Told) -> bool:
        """Have all later commits follow these rules, and owe all counters of the feed if they or the receiver are new.
        Returns whether this process is the one that reports; otherwise another one does, by the same rules.

        Raises `SettingsError` if another process reports by other rules.
        """
        ...

    async def owed(self, limit: int) -> Owed:
        """What is due, the longest due first, at most this many of each kind."""
        ...

    async def settle(self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, int]], /) -> None:
        """These were reported. A counter that has changed since stays owed, and no counter is due before its interval
        has passed. Of a reach, the thresholds up to the number were reported.
        """
        ...

    async def put_off(
        self, changes: Sequence[tuple[Change, Millis]], reaches: Sequence[tuple[Reach, Millis]], /
    ) -> None:
        """Keep these owed. They are not due before this many milliseconds have passed."""
        ...

    async def sweep(self) -> bool:
        """Owe the next page of counters, if rules are new. Returns whether there was one."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when something may be due that was not before, at the latest after this many seconds."""
        ...

    def waiting(self) -> Waiting: ...

    async def close(self) -> None: ...


class Receiver(Protocol):
    """Takes events."""

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        """For each event, why it was not taken; empty if it was taken for good. It may have been taken all the same."""
        ...

    async def close(self) -> None: ...
