"""Limits of a commit: the store itself refuses one that arrives too late. Pure."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """The limits of a commit. Without any it may be applied whenever it arrives."""

    until: int | None = None
    """The store does not apply the commit after this time (ms, by `StoreClock.now`)."""
    messages: tuple[str, ...] = ()
    """Message ids. Where broker and store are one file, the commit is applied only while all of them exist."""
