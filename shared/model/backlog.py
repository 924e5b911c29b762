"""What waits to be applied, and for how long."""

from typing import NamedTuple


class Backlog(NamedTuple):
    """What was accepted and is not known to be applied."""

    increments: int = 0
    oldest: float = 0.0
    """Seconds for which the oldest of it has been waiting."""
