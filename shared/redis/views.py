"""A cache of views that Redis has answered, and the names of counters that have an entry there."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

from shared.model.buckets import Instant
from shared.model.fleet import NamedOverlay
from shared.model.words import View
from shared.redis.links import AwayError, Script
from shared.redis.own_entries import read
from shared.redis.scripts import BEGIN
from shared.redis.server import Server

MOST_KNOWN: Final = 20_000
_VERSIONS: Final = count(-1, -1)
"""Below zero, so that none equals a version of the local copy's views. Shared by all overlays in this process."""


class Context(NamedTuple):
    """What all views of one answer have in common."""

    epoch: str
    exact: bool
    floor: Instant
    """The floor of all counters."""


def both(one: View, other: View) -> View:
    """Join two views of a counter. An entry that both have counts once, by its receipt key. The result is not exact."""
    return replace(
        one,
        entries=(*one.entries, *other.entries),
        floor=max(one.floor, other.floor),
        version=next(_VERSIONS),
        exact=False,
    )


def _doubted(view: View, unsure: Collection[str]) -> View:
    """The view, which is not exact if it has an unsure entry. Then it is not cached and has a version of its own, since
    entries become unsure by age alone.
    """
    if any(entry.key in unsure for entry in view.entries):
        return replace(view, version=next(_VERSIONS), exact=False)
    return view


class _Seen(NamedTuple):
    version: bytes
    floor: Instant
    """The counter's own floor."""
    of: Context
    view: View


class ViewQuestion(NamedTuple):
    """The counters that Redis is asked for, and what the cache held then. It may change before the answer comes."""

    counters: Sequence[str]
    known: Mapping[str, _Seen]

    def arguments(self) -> Iterator[Any]:
        """Each counter, followed by the version that is known of it."""
        for name in self.counters:
            yield name
            yield self.known[name].version if name in self.known else b""


class Views:
    """A cache for one epoch. It is emptied when it is full, or when another epoch begins."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._epoch = ""
        self._empty: tuple[Context, View] | None = None

    def question(self, counters: Sequence[str], epoch: str) -> ViewQuestion:
        if len(self._seen) > MOST_KNOWN or epoch != self._epoch:
            self._seen.clear()
            self._epoch = epoch
        seen = self._seen
        return ViewQuestion(counters, {name: seen[name] for name in counters if name in seen})

    def answer(
        self, question: ViewQuestion, hashes: Sequence[Any], of: Context, unsure: Collection[str] = ()
    ) -> dict[str, View]:
        """Views by counter, without counters that have too many entries. A view with an `unsure` entry is not exact."""
        found = [(name, one) for name, one in zip(question.counters, hashes, strict=True) if one != b"many"]
        views = {name: self._view(name, one, of, question.known.get(name)) for name, one in found}
        return {name: _doubted(view, unsure) for name, view in views.items()} if unsure else views

    def _view(self, name: str, found: bytes, of: Context, before: _Seen | None) -> View:
        if found == b"":
            if of.epoch == self._epoch:
                self._seen.pop(name, None)
            if self._empty is None or self._empty[0] != of:
                self._empty = (of, View((), of.floor, next(_VERSIONS), of.exact, of.epoch))
            return self._empty[1]
        if b"\n" not in found:
            assert before is not None  # noqa: S101 - Redis sends only a version if the question had the same one
            if before.of == of:
                return before.view
            version, floor, entries = found, before.floor, before.view.entries
        else:
            version, floor, entries = read(found.split(b"\n"))
        view = View(entries, max(floor, of.floor), next(_VERSIONS), of.exact, of.epoch)
        if of.epoch == self._epoch:
            self._seen[name] = _Seen(version, floor, of, view)
        return view


# Lists the counters that have an entry in Redis.


NAMES: Final = Script(
    BEGIN
    + """
return {'ok', redis.call('ZRANGEBYLEX', P .. 'names', ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
"""
)
"""Arguments: identity, the first and the last name as ZRANGEBYLEX has them, how many names or -1 for all."""


async def names_in(
    server: Server, overlay: NamedOverlay, prefix: str, after: str, limit: int | None
) -> Sequence[str] | None:
    """What Redis answers; None if it does not."""
    if not server.up or not overlay.epoch:
        return None
    first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + b"\xff"
    if after and after >= prefix:
        first = b"(" + after.encode()
    with contextlib.suppress(AwayError):
        reply = await server.ask(NAMES, overlay, first, last, -1 if limit is None else limit)
        if reply[0] == b"ok":
            return [name.decode() for name in reply[1]]
    return None
