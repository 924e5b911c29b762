"""The ports of the fleet: the entity in the store that says which readings may be exact, and the rows of a spool."""

from collections.abc import AsyncIterator, Callable, Collection
from typing import NamedTuple, Protocol

from shared.model.envelope import Envelope
from shared.model.fleet import Fleet
from shared.model.times import Instant, StoreMillis


class FleetLook(NamedTuple):
    """The fleet at one instant within the call."""

    fleet: Fleet
    changed: Instant
    """The instant of its last change; `BEGINNING` if there is no entity."""
    now: StoreMillis
    """The store's clock, or a little less."""


class Left(NamedTuple):
    """What a member leaves behind that stops in good order."""

    member: str
    receipts: Collection[str]
    """The receipt keys of everything that was confirmed here and is not known to be settled."""


class FleetBook(Protocol):
    """Keeps the fleet. All methods raise `TransientError` if the store does not answer; a change may have happened."""

    async def look(self) -> FleetLook:
        """Read the fleet with strong consistency. If there is no entity, it has version 0 and no members."""
        ...

    async def change(self, step: Callable[[Fleet, StoreMillis], Fleet | None], left: Left | None = None) -> FleetLook:
        """Call `step` with the fleet and the store's clock, write what it returns, and return the fleet then.

        Nothing is written if `step` returns None. The change is atomic, so `step` may be called several times. This
        method raises the version. If there is no entity, `step` gets the result of `fleet.first`.

        `left` is written in the same change, and goes with the one that removes the member's record.
        """
        ...

    async def left_by(self, member: str) -> Collection[str] | None:
        """The receipts that the member listed when it stopped; None if there is no such list."""
        ...


class Rows(Protocol):
    """The rows that a spool file held at one instant."""

    unreadable: bool | None
    """Whether some rows can't be read; None until all were read."""

    def read(self) -> AsyncIterator[tuple[Envelope, StoreMillis]]:
        """All rows and when they were taken, oldest first. If you stop before the end, the next call
        begins with the last row that you got.
        """
        ...

    async def all_forwarded(self) -> bool:
        """Whether all rows have been forwarded."""
        ...


class SpoolFile(Protocol):
    """A spool file. Several processes may use it, at once or one after the other."""

    @property
    def id(self) -> str:
        """The id of the file, which never changes."""
        ...

    def hold(self, member: str) -> None:
        """From now on this process adds rows as that member."""
        ...

    def alive(self) -> Collection[str]:
        """The members that may add rows."""
        ...

    def rows(self) -> Rows:
        """The rows that are there now."""
        ...
