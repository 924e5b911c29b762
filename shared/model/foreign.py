"""Counters of other applications: how they are read, and what is kept of how much of them was added here."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol


class Foreign(NamedTuple):
    """A counter of another application."""

    name: str
    total: int = 0
    """What its own code would answer."""
    flaw: str = ""
    """Why nobody knows."""


class Mark(NamedTuple):
    """How much of what a source holds of a counter has been added here: the sum of all such additions."""

    source: str
    counter: str
    seen: int
    """What it must still be; 0 before the first addition."""
    total: int
    """What it is from then on: another number, within int64."""


class Source(Protocol):
    """One application, which may go on counting. Nothing is written there."""

    name: str
    """The same for the same data, for ever; no other data has it."""

    def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        """Those whose names begin so, each once; among them, as sentences, what was found that its own code does not
        count. Of one that is counted on meanwhile, a total that it may have had; no less than any it had before, if it
        only grows.
        """
        ...

    async def counter(self, name: str) -> Foreign | None:
        """One of these, as it is now; none if it is not there."""
        ...
