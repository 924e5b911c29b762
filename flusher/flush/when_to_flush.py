"""Decides when a window is flushed. Pure."""

from dataclasses import dataclass, field
from typing import Final

from flusher.flush.window import Window

URGENT: Final = 0.01
"""Seconds for which a window waits for more while a request of this process waits for it."""
GROWTH: Final = 1.5
"""Each window is so much longer than the one before, as long as nobody waits."""
_PART: Final = 4
"""A window that holds 1/4 of the bytes that it may hold is flushed, even if nobody waits for it."""


@dataclass(slots=True)
class FlushPolicy:
    """A window is flushed when the first of these limits is reached."""

    max_age: float
    """Seconds since its first message, if somebody waits."""
    max_counters: int
    max_bytes: int
    longest: float = 0.0
    """Seconds that the age may grow to while nobody does."""
    patience: float = field(init=False)
    """Seconds since the first message, now."""

    def __post_init__(self) -> None:
        self.patience = self.max_age

    def due(self, window: Window, begun: float, now: float, *, urgent: bool) -> bool:
        """`urgent`: a request of this process waits for what is in the window."""
        if not window:
            return False
        age = now - begun
        if urgent:
            return age >= min(self.max_age, URGENT) or self.full(window)
        if age >= self.max_age and (not window.patient or window.bytes >= self.max_bytes // _PART):
            return True
        return age >= self.patience or self.full(window)

    def full(self, window: Window) -> bool:
        return len(window.counters) >= self.max_counters or window.bytes >= self.max_bytes

    def closed(self, window: Window) -> None:
        """The window is being flushed, and the next one begins."""
        longest = max(self.max_age, self.longest)
        self.patience = min(self.patience * GROWTH, longest) if window.patient else self.max_age
