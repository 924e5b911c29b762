"""Views of counters as Redis answered them; what has not changed since is neither sent nor read again."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
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


class Question(NamedTuple):
    """What was known when Redis was asked. Before it answers, the cache may forget that, or learn of others."""

    counters: Sequence[str]
    epoch: bytes
    known: Mapping[str, _Seen]

    def arguments(self) -> Iterator[Any]:
        """The epoch of what is known, and the counters with the versions known."""
        yield self.epoch
        for name in self.counters:
            yield name
            yield self.known[name].version if name in self.known else b""


class Views:
    """A cache: forgotten as a whole when it is full."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._epoch = b""
        self._empty: tuple[tuple[str, bool, int], View] | None = None

    def question(self, counters: Sequence[str]) -> Question:
        if len(self._seen) > MOST:
            self._seen.clear()
        seen = self._seen
        return Question(counters, self._epoch, {name: seen[name] for name in counters if name in seen})

    def answer(self, question: Question, reply: list[Any], *, exact: bool) -> dict[str, View]:
        """`exact`: as far as this process itself is concerned. Counters with too many entries are left out."""
        _, epoch, whole, floor, *hashes = reply
        self._turn(epoch)
        of = (epoch.decode(), exact and bool(whole), int(floor))
        found = [(name, one) for name, one in zip(question.counters, hashes, strict=True) if one != b"many"]
        return {name: self._view(name, one, of, question.known.get(name)) for name, one in found}

    def _turn(self, epoch: bytes) -> None:
        name = epoch.partition(b"/")[0]
        if name != self._epoch:
            self._seen.clear()
            self._epoch = name

    def _view(self, name: str, found: bytes, of: tuple[str, bool, int], before: _Seen | None) -> View:
        if found == b"":
            self._seen.pop(name, None)
            if self._empty is None or self._empty[0] != of:
                self._empty = (of, View((), of[2], next(_VERSIONS), of[1], of[0]))
            return self._empty[1]
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
