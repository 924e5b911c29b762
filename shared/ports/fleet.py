"""The ports of the fleet: the one entity in the store that says which readings may be exact, and rows of a spool."""

from collections.abc import AsyncIterator, Callable, Collection
from typing import NamedTuple, Protocol

from shared.model.envelope import Envelope
from shared.model.fleet import Fleet


class FleetLook(NamedTuple):
    """The fleet at one instant within the call."""

    fleet: Fleet
    changed: int
    """The store's time of its last change, comparable with those of snapshots and floors; 0 if there is no entity."""
    now: int
    """The store's clock, or a little less: milliseconds since 1970."""


class FleetBook(Protocol):
    """Keeps the fleet. Both methods raise `TransientError` if the store does not answer; a change may have happened."""

    async def look(self) -> FleetLook:
        """Read it, strongly consistent. Without the entity: version 0, nobody is a member."""
        ...

    async def change(self, step: Callable[[Fleet, int], Fleet | None]) -> FleetLook:
        """Write what `step` makes of the fleet and of the store's clock (ms), unless that is None; what is there then.

        `step` sees the fleet as it is, and nobody else changes it meanwhile; it may be called several times.
        The version is raised here. Without an entity it sees what `fleet.first` makes.
        """
        ...


class Rows(Protocol):
    """What was in the spool file at one instant."""

    left: bool | None
    """Whether there is one that can't be read; None before all of them were read."""

    def read(self) -> AsyncIterator[tuple[Envelope, int]]:
        """All of them and when they were taken (store's time, ms), oldest first. Who stops before the end is given the
        last one again, and what comes after it, by the next call.
        """
        ...

    async def gone(self) -> bool:
        """Whether all of them have been forwarded."""
        ...


class SpoolFile(Protocol):
    """A spool file, which processes may have together, or one after the other."""

    @property
    def id(self) -> str:
        """Of the file, for ever."""
        ...

    def hold(self, member: str) -> None:
        """From now on this process is that member, and may add rows."""
        ...

    def alive(self) -> Collection[str]:
        """The members that may add rows."""
        ...

    def rows(self) -> Rows:
        """What is there now."""
        ...
