"""The kinds of times, each with its unit and its clock, so that mypy refuses one where another is expected. Pure.

A plain `float` is a number of seconds. What you compute from a time is a plain number again: say anew which kind it is,
where you know that.
"""

from typing import Final, NewType, TypeAlias

Instant = NewType("Instant", int)
"""A place in the order of a store's commits: larger is later. Stores count commits, microseconds or versions, so it can
be compared only with instants of the same store. Snapshots, bases and floors have one.
"""
StoreMillis = NewType("StoreMillis", int)
"""Milliseconds by the store's clock. It alone decides what has expired or is too old. In a SQLite file they begin with
the file, elsewhere in 1970.
"""
BrokerMillis = NewType("BrokerMillis", int)
"""Milliseconds since 1970 by the broker's clock, which says when a message was published."""
WallMillis: TypeAlias = int
"""Milliseconds since 1970 by the clock of a process, for people. Nothing is decided by it, so any integer may be one.
"""
Millis = NewType("Millis", int)
"""A duration in milliseconds, such as a lifetime. Settings are in seconds."""
WallSeconds = NewType("WallSeconds", float)
"""Seconds since 1970 by a wall clock, which somebody may set."""
Monotonic = NewType("Monotonic", float)
"""Seconds since some moment by `Clock.monotonic` of this process, which never goes back."""

BEGINNING: Final = Instant(0)
"""Before every commit."""
NEVER: Final = StoreMillis(0)
"""Stands for no time, as in a receipt that never expires."""
