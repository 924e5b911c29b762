"""Counters of other applications: how to read them, and marks that record how much was imported."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol


class Foreign(NamedTuple):
    """A counter of another application."""

    name: str
    total: int = 0
    """The value that the application's own code would return."""
    flaw: str = ""
    """Why the total is unknown; empty if it is known."""


class Mark(NamedTuple):
    """Records how much of a counter in a source has been added here: the sum of all imports."""

    source: str
    counter: str
    seen: int
    """The expected old value; 0 before the first import."""
    total: int
    """The new value: a different number, within int64."""


class Source(Protocol):
    """Another application's data. It may go on counting; nothing is written there."""

    name: str
    """Identifies the data for ever; no other data has the same name."""

    def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        """All counters whose names start with the prefix, each once. A string among them describes something that the
        application's own code does not count.

        The total of a counter that changes meanwhile is one that it may have had. If it only grows, the total is no
        less than before the call.
        """
        ...

    async def counter(self, name: str) -> Foreign | None:
        """One counter as it is now; None if it does not exist."""
        ...
