"""Limits of a commit: the store itself refuses one that arrives too late. Pure."""

from typing import NamedTuple

from shared.model.times import StoreMillis


class Bounds(NamedTuple):
    """The limits of a commit. Without any it may be applied whenever it arrives."""

    until: StoreMillis | None = None
    """The store does not apply the commit after this time."""
    messages: tuple[str, ...] = ()
    """Message ids. Where broker and store are one file, the commit is applied only while all of them exist."""
