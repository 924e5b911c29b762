"""Owns what bounds a commit in time, so that one that was long on its way is refused by the store itself. Pure."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """Without any, a commit may be applied whenever it arrives."""

    until: int | None = None
    """The store does not apply the commit after this time (ms, by `Store.now`)."""
    messages: tuple[str, ...] = ()
    """Message ids. Where broker and store are one file, the commit is applied only while all of these are there."""
