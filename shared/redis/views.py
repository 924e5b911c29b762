"""Views of counters as Redis answered them; what has not changed since is neither sent nor read again."""

from collections.abc import Sequence
from itertools import chain, count
from typing import Any, Final, NamedTuple

from shared.redis.entries import read
from shared.words import View

MOST: Final = 20_000
_VERSIONS: Final = count(-1, -1)
"""Below those of the local copy's views, so that none is ever shown for another. Of all overlays in this process."""


class _Seen(NamedTuple):
    version: bytes
    floor: int
    """Of the counter itself."""
    of: tuple[str, bool, int]
    """Epoch, whether exact, and the floor of all counters."""
    view: View


class Views:
    """A cache: forgotten as a whole when it is full."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._epoch = b""
        self._empty: tuple[tuple[str, bool, int], View] | None = None

    def question(self, counters: Sequence[str]) -> tuple[bytes, list[Any]]:
        """The epoch of what is known, and the counters with the versions known."""
        if len(self._seen) > MOST:
            self._seen.clear()
        seen = self._seen
        known = ((name, seen[name].version if name in seen else b"") for name in counters)
        return self._epoch, [*chain.from_iterable(known)]

    def answer(self, counters: Sequence[str], reply: list[Any], *, exact: bool) -> dict[str, View]:
        """`exact`: as far as this process itself is concerned."""
        _, epoch, whole, floor, *hashes = reply
        self._turn(epoch)
        of = (epoch.decode(), exact and bool(whole), int(floor))
        return {name: self._view(name, found, of) for name, found in zip(counters, hashes, strict=True)}

    def _turn(self, epoch: bytes) -> None:
        name = epoch.partition(b"/")[0]
        if name != self._epoch:
            self._seen.clear()
            self._epoch = name

    def _view(self, name: str, found: bytes, of: tuple[str, bool, int]) -> View:
        if found == b"":
            self._seen.pop(name, None)
            if self._empty is None or self._empty[0] != of:
                self._empty = (of, View((), of[2], next(_VERSIONS), of[1], of[0]))
            return self._empty[1]
        before = self._seen.get(name)
        if b"\n" not in found:
            assert before is not None  # noqa: S101 - it was asked with the version that it is answered with
            if before.of == of:
                return before.view
            version, floor, entries = found, before.floor, before.view.entries
        else:
            version, floor, entries = read(found.split(b"\n"))
        view = View(entries, max(floor, of[2]), next(_VERSIONS), of[1], of[0])
        self._seen[name] = _Seen(version, floor, of, view)
        return view
