"""Decides when a window is flushed. Pure."""

from dataclasses import dataclass
from typing import Final

from flusher.flush.window import Window

URGENT: Final = 0.01
"""Seconds for which a window waits for more while somebody waits for it."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """A window is flushed when the first of these limits is reached."""

    max_age: float
    """Seconds since its first message."""
    max_counters: int
    max_bytes: int

    def due(self, window: Window, begun: float, now: float, *, urgent: bool) -> bool:
        """`urgent`: somebody waits for what is in the window."""
        longest = min(self.max_age, URGENT) if urgent else self.max_age
        return bool(window) and (now - begun >= longest or self.full(window))

    def full(self, window: Window) -> bool:
        return len(window.counters) >= self.max_counters or window.bytes >= self.max_bytes
