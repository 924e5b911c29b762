"""Decides when a process names another overlay. Naming is always safe; the rules only avoid disputes (rule 9). Pure."""

from typing import Final

from shared.model.fleet import Fleet, NamedOverlay

FIRST: Final = 5.0
"""Seconds between two namings by one process, if another process names in between. They double each time, since the two
sides of a split would go on for ever.
"""
MOST: Final = 300.0
CALM: Final = 10
"""A naming after this many pauses or more sets the pause back to `FIRST`."""
ELSEWHERE: Final = 60.0
"""Seconds for which members of an overlay at another address are left alone. They double with the pause."""


class Naming:
    """When to name the server that this process reaches. Use it while the named overlay does not answer."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._pause = FIRST
        self._at = float("-inf")
        self._own = ""
        """The nonce that this process named last."""
        self._since: tuple[NamedOverlay, float] | None = None
        """The named overlay that this process does not reach, and when it first found that."""

    def due(self, fleet: Fleet, server: str, now: float) -> bool:
        """Whether to name the server with the identity `server` now. `now` is monotonic."""
        overlay = fleet.overlay
        if self._since is None or self._since[0] != overlay:
            self._since = overlay, now
        if overlay.nonce == self._own or overlay.identity == server:
            return True  # the server was restarted or emptied, so no other process claims another one
        if now - self._at < self._pause:
            return False
        if overlay.place == self._place:
            return True
        alone = not any(fleet.joined(record) and not record.stopped for record in fleet.members.values())
        return alone or now - self._since[1] >= ELSEWHERE * self._pause / FIRST

    def named(self, nonce: str, now: float) -> None:
        """Note that this process has tried to name an overlay with this nonce."""
        self._pause = min(2 * self._pause, MOST) if now - self._at < CALM * self._pause else FIRST
        self._at, self._own = now, nonce
