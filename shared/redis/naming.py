"""When a process names another overlay. Naming is always safe; the rules here only keep the peace (rule 9). Pure."""

from typing import Final

from shared.model.fleet import Fleet, NamedOverlay

FIRST: Final = 5.0
"""Seconds between two namings by one process, if another one names between them; doubled each time. The two sides of a
split would go on for ever.
"""
MOST: Final = 300.0
CALM: Final = 10
"""Times the pause after which it begins with the first one again."""
ELSEWHERE: Final = 60.0
"""Seconds for which the members of an overlay at another address are left alone, doubled in the same way."""


class Naming:
    """Asked while the named overlay is not the server that this process reaches."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._pause = FIRST
        self._at = float("-inf")
        self._own = ""
        """The nonce that this process named last."""
        self._since: tuple[NamedOverlay, float] | None = None
        """Which overlay was found to be another one, and when first."""

    def due(self, fleet: Fleet, server: str, now: float) -> bool:
        """Whether to name the server of that identity; `now` is monotonic."""
        overlay = fleet.overlay
        if self._since is None or self._since[0] != overlay:
            self._since = overlay, now
        if overlay.nonce == self._own or overlay.identity == server:
            return True  # nobody else speaks for it: the server was restarted or emptied
        if now - self._at < self._pause:
            return False
        if overlay.place == self._place:
            return True
        alone = not any(fleet.joined(record) for record in fleet.members.values())
        return alone or now - self._since[1] >= ELSEWHERE * self._pause / FIRST

    def named(self, nonce: str, now: float) -> None:
        """It was done."""
        self._pause = min(2 * self._pause, MOST) if now - self._at < CALM * self._pause else FIRST
        self._at, self._own = now, nonce
