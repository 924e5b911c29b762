"""Decides when a window is flushed. Pure."""

from dataclasses import dataclass

from flusher.flush.window import Window


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """A window is flushed when the first of these limits is reached."""

    max_age: float
    """Seconds since its first message."""
    max_counters: int
    max_bytes: int

    def due(self, window: Window, begun: float, now: float) -> bool:
        return bool(window) and (now - begun >= self.max_age or self.full(window))

    def full(self, window: Window) -> bool:
        return len(window.counters) >= self.max_counters or window.bytes >= self.max_bytes
